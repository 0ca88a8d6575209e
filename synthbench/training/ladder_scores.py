"""Scores of ladders, counted from the baselines that are committed now.

A row keeps the accuracy on each level, and the baselines of the day on which it was made. A shortcut that is found
later raises a baseline and needs no new training: readers compute the score again.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pandas as pd

from synthbench.canonical import canonical_json
from synthbench.errors import UsageError
from synthbench.heights import HEIGHT, height, metrics_of_rungs, rungs_in
from synthbench.registry import version_of
from synthbench.tasks import TASKS, Rung, RungBounds, committed_bounds

USED = ["status", "metric_name", "task", "task_version", "task_args", "metrics", "score", "skill"]
"""The columns that :func:`rescored` reads."""


def with_committed_baselines(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row whose score, skill and metrics follow from its accuracies by level and the committed baselines.

    A row of another task stays as it is: one without a ladder, from a plugin, or of a version that is not installed.
    """
    bounds = _bounds_of(row["task"], row["task_version"], row["task_args"]) if _has_levels(row) else None
    levels = rungs_in(json.loads(row["metrics"])) if bounds else []
    if bounds is None or len(levels) != len(bounds):
        return dict(row)
    levels = [level._replace(base=of.base, ceiling=of.ceiling) for level, of in zip(levels, bounds, strict=True)]
    metrics = json.loads(row["metrics"]) | metrics_of_rungs(levels)
    share = height(levels) / len(levels)
    return {**row, "metrics": canonical_json(metrics), "score": share, "skill": share}


def rescored(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a store, each by :func:`with_committed_baselines`; the same frame if no baseline has changed."""
    if rows.empty:
        return rows
    of_levels = rows.loc[rows["metric_name"].str.endswith(HEIGHT), USED]
    again = pd.DataFrame.from_records(
        [with_committed_baselines(row) for row in of_levels.to_dict("records")], columns=USED, index=of_levels.index
    )
    has_changed = again["metrics"] != of_levels["metrics"]
    if not has_changed.any():
        return rows
    changed = rows.copy()
    for column in ("metrics", "score", "skill"):
        changed.loc[again.index[has_changed], column] = again.loc[has_changed, column]
    return changed


def _has_levels(row: Mapping[Any, Any]) -> bool:
    return bool(row["status"] == "ok" and row["metric_name"].endswith(HEIGHT))


@lru_cache(maxsize=4096)
def _bounds_of(task: str, version: str, arguments: str) -> tuple[RungBounds, ...] | None:
    """The committed bounds of the levels that a row names; None if one has none."""
    if task not in TASKS or not TASKS.is_built_in(task) or version_of(TASKS[task]) != version:
        return None
    try:
        levels = [
            Rung(TASKS[task](**level["task"]), level["length"], level["load"], level["first_new"])
            for level in json.loads(arguments)["rungs"]
        ]
    except (KeyError, TypeError, UsageError):  # a store may come from a stranger
        return None
    found = [bounds for level in levels if (bounds := committed_bounds(level)) is not None]
    return tuple(found) if len(found) == len(levels) else None
