"""Shared code of the tests of training on a ladder."""

from collections.abc import Mapping
from typing import Any

from synthbench.results import RUNS, Store
from synthbench.runner.plan import make_cells, shortened
from synthbench.suites import load_suite
from synthbench.training.cell import Cell

Row = dict[str, Any]
STEPS = 6


def on_ladder(
    task: str = "parity_running",
    mechanism: str = "linear",
    *,
    steps: int = STEPS,
    limit: int = 8,
    model: Mapping[str, Any] | None = None,
    **ladder: Any,
) -> Cell:
    """A cell of suite ``core``, shortened, with other settings of its model and its ladder."""
    suite = shortened(load_suite("core"), steps=steps, limit=limit)
    assert suite.ladder is not None
    changed = {"ladder": suite.ladder.model_copy(update=ladder), "model": suite.model.model_copy(update=model or {})}
    suite = suite.model_copy(update=changed)
    (cell,) = make_cells(suite, {task: {}}, {mechanism: {}}, device_type="cpu", is_full=False)
    return cell


def rows_of(store: Store) -> list[Row]:
    rows: list[Row] = store.outline(RUNS.names).to_pylist()
    return rows
