"""Scores of ladders, counted from the baselines that are committed now.

A row keeps the accuracy on each level, and the baselines of the day on which it was made. A shortcut that is found
later raises a baseline and needs no new training: readers compute the score again.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

from synthbench.canonical import canonical_json
from synthbench.errors import UsageError
from synthbench.levels import LADDER_SCORE, LevelScore, ladder_score, levels_in, metrics_of_levels
from synthbench.registry import version_of
from synthbench.tasks import TASKS, Level, LevelBounds, committed_bounds, floor_and_ceiling
from synthbench.training.ladder import FACTORS_BEYOND, beyond, own_levels

USED = ["status", "metric_name", "task", "task_version", "task_args", "metrics", "score", "skill"]
"""The columns that :func:`rescored` reads."""


def with_committed_baselines(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row whose score, skill and metrics follow from its accuracies by level and the committed baselines.

    A row of another task stays as it is: one without a ladder, from a plugin, or of a version that is not installed.
    """
    has_levels = row["status"] == "ok" and row["metric_name"].endswith(LADDER_SCORE)
    trained = _levels_of(row["task"], row["task_version"], row["task_args"]) if has_levels else ()
    bounds = _bounds_of(trained)
    metrics = json.loads(row["metrics"])
    then = levels_in(metrics) if bounds else []
    if len(then) != len(bounds) or not then:
        return dict(row)
    levels = [LevelScore(level.load, level.score, of.base, of.ceiling) for level, of in zip(then, bounds, strict=True)]
    again: dict[str, float | None] = {}
    for factor in FACTORS_BEYOND:
        # The row says by its load which level it was tested on; finding it anew would draw samples of all levels.
        if level := _committed_beyond(trained[-1], factor, metrics.get(f"x{factor}.load")):
            again |= _metrics_beyond(factor, level, metrics.get(f"x{factor}.score"))
    if levels == then and again.items() <= metrics.items():
        return dict(row)
    metrics |= metrics_of_levels(levels) | again
    share = ladder_score(levels)
    return {**row, "metrics": canonical_json(metrics), "score": share, "skill": share}


def rescored(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a store, each by :func:`with_committed_baselines`; the same frame if no baseline has changed."""
    if rows.empty:
        return rows
    of_levels = rows.loc[rows["metric_name"].str.endswith(LADDER_SCORE), USED]
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


def metrics_beyond(trained: Sequence[Level], accuracies: Mapping[int, float | None]) -> dict[str, float | None]:
    """The tests beyond the trained levels as metrics of a row: ``x2.length``, ``x2.score``, ``x2.skill`` and so on.

    Skill is counted from the committed baseline of the task's own level, elsewhere from the floor; both are called
    ``x2.floor``, as in suites without ladders. The load is null where the test is no level of the task's.

    Args:
        trained: The levels of the run, the easiest first.
        accuracies: By factor; None where the model reads no more tokens.
    """
    tests = _tests_beyond(tuple(trained)) if accuracies else {}
    metrics: dict[str, float | None] = {}
    for factor, accuracy in accuracies.items():
        metrics |= _metrics_beyond(factor, tests[factor], accuracy)
    return metrics


def _metrics_beyond(factor: int, level: Level, accuracy: float | None) -> dict[str, float | None]:
    floor, ceiling = _bounds_beyond(level)
    reached = None if accuracy is None else LevelScore(level.load, accuracy, floor, ceiling)
    return {
        f"x{factor}.load": float(level.load) if level.load else None,
        f"x{factor}.length": float(level.length),
        f"x{factor}.score": accuracy,
        f"x{factor}.floor": floor,
        f"x{factor}.ceiling": ceiling,
        f"x{factor}.skill": None if reached is None or ceiling <= floor else reached.skill,
    }


@lru_cache(maxsize=4096)
def _bounds_beyond(level: Level) -> tuple[float, float]:
    if (found := committed_bounds(level)) is not None:
        return found.base, found.ceiling
    floor, ceiling = floor_and_ceiling(level.task, level.length)
    return floor.value, ceiling.value


@lru_cache(maxsize=4096)
def _committed_beyond(longest: Level, factor: int, load: float | None) -> Level | None:
    """The level of such a test if its baseline is committed, so that it may be another one than on the row's day."""
    own = own_levels(type(longest.task), factor * longest.length) if load else ()
    return next((level for level in own if level.load == load and committed_bounds(level) is not None), None)


_tests_beyond = lru_cache(maxsize=4096)(beyond)


@lru_cache(maxsize=4096)
def _levels_of(task: str, version: str, arguments: str) -> tuple[Level, ...]:
    """The levels that a row names; none if they are no levels of the installed task."""
    if task not in TASKS or not TASKS.is_built_in(task) or version_of(TASKS[task]) != version:
        return ()
    try:
        return tuple(
            Level(TASKS[task](**level["task"]), level["length"], level["load"], level["first_new"])
            for level in json.loads(arguments)["rungs"]
        )
    except (KeyError, TypeError, UsageError):  # a store may come from a stranger
        return ()


@lru_cache(maxsize=4096)
def _bounds_of(levels: tuple[Level, ...]) -> tuple[LevelBounds, ...]:
    """The committed bounds of some levels; none if one of them has none."""
    found = [bounds for level in levels if (bounds := committed_bounds(level)) is not None]
    return tuple(found) if len(found) == len(levels) else ()
