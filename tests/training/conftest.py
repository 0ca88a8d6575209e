"""Fixtures of the tests of training on a ladder."""

import pytest

from synthbench.results import Store
from synthbench.runner.run import run
from tests.results.stores import reader
from tests.runner.runs import tiny
from tests.training.cells import STEPS


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The rows of a ladder's runs: two seeds at two rates."""
    root = tmp_path_factory.mktemp("climbed") / "results"
    assert run(
        tiny(root, suite="core", tasks=("parity_running",), seeds=(1, 2), steps=STEPS, limit=8, executor="inline")
    ).ok
    return reader(root)
