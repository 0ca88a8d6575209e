"""Fixtures of the tests of faults: drivers to be killed, and units that misbehave."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import synthbench
from synthbench.runner.executors import pool
from synthbench.runner.request import Request
from tests.faults.drivers import Driver, fields
from tests.runner.runs import FAULTS, one_by_one


@pytest.fixture(scope="session")
def _driving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, Path]]:
    undisturbed = tmp_path_factory.mktemp("undisturbed") / "results"
    driver = Driver(tmp_path_factory.mktemp("driver"), fields(undisturbed))
    yield driver, undisturbed
    driver.close()


@pytest.fixture
def driver(_driving: tuple[Driver, Path]) -> Driver:
    """Run requests in children that can be killed, or that something goes wrong in."""
    return _driving[0]


@pytest.fixture
def undisturbed(_driving: tuple[Driver, Path]) -> Path:
    """A store with the 12 rows of ``fields``, made in one go."""
    return _driving[1]


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    """A copy of the plugin whose units misbehave, for one test: units leave notes beside it."""
    (tmp_path / "toys").mkdir()
    return Path(shutil.copy(FAULTS, tmp_path / "toys" / "toys.py"))


@pytest.fixture
def _quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork workers from a process that has imported everything: a worker that is killed is replaced at once."""
    rooms = [module.name for module in walk_packages(synthbench.__path__, "synthbench.")]
    units = [name for name in rooms if re.match(r"synthbench\.(tasks|mechanisms|blocks|positions)\.(?!kernels)", name)]
    server = get_context("forkserver")
    server.set_forkserver_preload(["synthbench.runner.executors.pool", *units])
    monkeypatch.setattr(pool, "get_context", lambda _method: server)


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
