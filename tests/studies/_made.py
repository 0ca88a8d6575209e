"""Rows of ladders for the tests of several studies."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from studies.climb.page import SUITE
from synthbench.levels import LADDER_SCORE, LevelScore, metrics_of_levels
from synthbench.tasks import TASKS
from tests.reports._made import make_row

NUM_LEVELS = 8
LOADS = [2.0**level for level in range(NUM_LEVELS)]


def ladder_row(
    task: str, mech: str, seed: int, height: float | None, loads: Sequence[float] = LOADS, /, **changes: Any
) -> dict[str, Any]:
    """Make a row of suite climb whose levels follow from their loads and a height; without one, the run diverged."""
    facts = {
        "suite": SUITE.name, "suite_version": SUITE.version, "task": task, "task_category": TASKS[task].category(),
        "block": SUITE.model.block, "metric_name": LADDER_SCORE,
        "task_args": json.dumps({"load": "pairs", "rungs": [{"load": load, "length": 2} for load in loads]}),
    }  # fmt: skip
    if height is None:
        return make_row(mech, seed, None, **facts | {"metrics": "{}"} | changes)
    levels = [LevelScore(load, min(1.0, max(0.0, height - level)), 0.0, 1.0) for level, load in enumerate(loads)]
    metrics = metrics_of_levels(levels) | {"validation_accuracy": height / len(loads)}
    return make_row(mech, seed, height / len(loads), **facts | {"metrics": json.dumps(metrics)} | changes)


def ladder_rows(
    task: str, heights: Mapping[str, Sequence[float | None]], loads: Sequence[float], setting: str, /, **changes: Any
) -> pd.DataFrame:
    """Make the rows of one task from the heights of mechanisms, one a seed; a word tells settings apart."""
    return pd.DataFrame(
        ladder_row(task, mech, seed, height, loads, **changes, run_id=f"{task}-{mech}-{seed}-{setting}")
        for mech, of_mechanism in heights.items()
        for seed, height in enumerate(of_mechanism, start=1)
    )


def cells_in(text: str, beginning: str = "") -> list[list[str]]:
    """Return the cells of the lines of Markdown tables that begin in some way, headings among them."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {beginning}")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
