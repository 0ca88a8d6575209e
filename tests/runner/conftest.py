"""Shared code of the tests of planning and of workers."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from synthbench import plugins
from synthbench.runner.request import RunContext
from synthbench.suites.config import TuningSettings
from synthbench.training.cell import Cell
from tests.runner.runs import FAULTS
from tests.training.cells import make_cell


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    """The job of a worker, for a store that is not there yet."""
    return RunContext(tmp_path / "results", "cpu", "inline", time.time())


@pytest.fixture(scope="session")
def tuned() -> Cell:
    """A cell that chooses among three rates by two seeds."""
    cell = make_cell("first_token", steps=20, length=6, vocabulary=3, learning_rates=(1e-5, 1e-2, 2e-2))
    return replace(cell, suite=cell.suite.model_copy(update={"tuning": TuningSettings(seeds=(7, 8))}))


@pytest.fixture
def faulty(tmp_path: Path) -> Callable[[str], Cell]:
    """A cell of a mechanism that misbehaves; some leave notes beside their file."""
    plugins.load([os.fspath(shutil.copy(FAULTS, tmp_path))])
    return lambda name: make_cell("copy", name, length=8)
