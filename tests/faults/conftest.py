"""Fixtures of the tests of faults: drivers to be killed, and units that misbehave."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthbench.runner.executors import pool
from synthbench.runner.request import Request
from tests.faults.drivers import Driver, quick_processes, twelve_rows
from tests.runner.runs import FAULTS, one_by_one


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """Run requests in children that can be killed, or that something goes wrong in."""
    return Driver(tmp_path_factory.mktemp("driver") / "log")


@pytest.fixture(scope="session")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the rows of ``twelve_rows``, made in one go."""
    results = tmp_path_factory.mktemp("undisturbed") / "results"
    assert driver.run(twelve_rows(results)) == 0, driver.said
    return results


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    """A copy of the plugin whose units misbehave, for one test: units leave notes beside it."""
    (tmp_path / "toys").mkdir()
    return Path(shutil.copy(FAULTS, tmp_path / "toys" / "toys.py"))


@pytest.fixture
def _quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker that is killed be replaced at once."""
    monkeypatch.setattr(pool, "get_context", lambda _method: quick_processes())


@pytest.fixture
def request_of(toys: Path, tmp_path: Path) -> Callable[..., Request]:
    """Make a request for misbehaving mechanisms: two seeds, each by itself, of a short task."""

    def make(*mechanisms: str, **changes: Any) -> Request:
        base: dict[str, Any] = {
            "tasks": ("copy:length=8",), "mechanisms": mechanisms, "seeds": (0, 1), "steps": 3, "limit": 8,
            "results": tmp_path / "results", "plugins": (os.fspath(toys),),
        }  # fmt: skip
        return one_by_one(**(base | changes))

    return make
