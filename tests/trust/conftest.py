"""Shared code of the tests of strangers' rows."""

from collections.abc import Callable
from typing import Any

import pytest

from synthbench.canonical import canonical_json
from synthbench.results.schema import run_id

MakeRow = Callable[..., dict[str, Any]]


@pytest.fixture
def make_honest(make_row: MakeRow) -> MakeRow:
    """A row that agrees with itself; its hashes follow from its configuration unless changed."""

    def make(seed: int = 42, **changes: Any) -> dict[str, Any]:
        config = {"seed": seed, "task": "copy"}
        hashes = {"run_id": run_id(config), "config_json": canonical_json(config), "config_hash": run_id(config)}
        return make_row(**({"seed": seed} | hashes | changes))

    return make
