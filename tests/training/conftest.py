"""Fixtures of the tests of training on a ladder."""

import pytest

from synthbench.results import Store
from synthbench.runner.request import Request
from synthbench.runner.run import run
from tests.training.ladders import STEPS


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The rows of a ladder's runs: two seeds at two rates."""
    root = tmp_path_factory.mktemp("climbed") / "results"
    request = Request(
        suite="core", tasks=("parity_running",), mechanisms=("linear",), seeds=(1, 2), steps=STEPS, limit=8,
        device="cpu", results=root, executor="inline",
    )  # fmt: skip
    assert run(request).ok
    return Store.open(root, create=False)
