"""Scores over a task's levels, recomputed with the committed baselines.

The committed baselines are the shortcut baselines in this version of the package: the accuracies of simple rules on
each level.

A row keeps the accuracy on each level and the baselines known when the row was made. If a better shortcut is found
later, the baseline increases, and the score is recomputed without new training.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd
from pydantic_core import from_json

from synthbench.canonical import canonical_json
from synthbench.errors import UsageError
from synthbench.levels import LADDER_SCORE, LevelScore, ladder_score, levels_in, num_levels_in
from synthbench.registry import version_of
from synthbench.tasks import TASKS, Level, committed_bounds, floor_and_ceiling
from synthbench.training.ladder import FACTORS_BEYOND, beyond, own_levels

_READ = ["status", "metric_name", "task", "task_version", "task_args", "metrics"]
USED = [*_READ, "score", "skill"]
"""The columns that :func:`rescored` reads or replaces."""


def with_committed_baselines(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row with score, skill and metrics computed anew from the shortcut baselines of this package version.

    A shortcut baseline is the accuracy of a simple rule on a level. The row's own accuracies on the levels are used. A
    row stays unchanged if it has no score over levels, its task comes from a plugin, or the task's installed version
    differs from the row's.
    """
    return {**row, **_changes(*(row[name] for name in _READ))}


def _changes(status: str, metric_name: str, task: str, version: str, arguments: str, text: str) -> dict[str, Any]:
    """Recompute score, skill and metrics from the columns ``_READ`` of a row; the result is empty if none changes."""
    has_levels = status == "ok" and metric_name.endswith(LADDER_SCORE)
    settings = (task, version, arguments)
    bounds = _bounds_of(*settings) if has_levels else {}
    metrics = _read(text) if bounds else {}
    if not bounds or num_levels_in(metrics) != len(bounds) // 2:
        return {}
    present = dict[str, float | None](bounds)
    for factor in FACTORS_BEYOND:
        # The load in the row shows which level it was tested on; a new search would draw samples of all levels.
        if level := _committed_beyond(*settings, factor, metrics.get(f"x{factor}.load")):
            present |= _metrics_beyond(factor, level, metrics.get(f"x{factor}.score"))
    if present.items() <= metrics.items():
        return {}
    metrics |= present
    share = ladder_score(levels_in(metrics))
    return {"metrics": canonical_json(metrics), "score": share, "skill": share}


def _read(text: str) -> dict[str, Any]:
    """Parse JSON three times as fast as the standard library, since a store has thousands of rows."""
    try:
        found = from_json(text)
    except ValueError:  # for half of a surrogate pair, which the standard library accepts
        found = json.loads(text)
    return dict(found)


def rescored(rows: pd.DataFrame) -> pd.DataFrame:
    """Apply :func:`with_committed_baselines` to the rows of a store; return the same frame if nothing changes."""
    if rows.empty:
        return rows
    columns = [rows[name].to_numpy(dtype=object) for name in _READ]
    found = {place: changes for place, row in enumerate(zip(*columns, strict=True)) if (changes := _changes(*row))}
    if not found:
        return rows
    changed = rows.copy()
    for name in ("metrics", "score", "skill"):
        values = changed[name].to_numpy(dtype=object, copy=True)
        values[list(found)] = [changes[name] for changes in found.values()]
        changed[name] = pd.Series(values, index=rows.index, dtype=rows[name].dtype)
    return changed


def metrics_beyond(trained: Sequence[Level], accuracies: Mapping[int, float | None]) -> dict[str, float | None]:
    """Return the results of tests that are longer than all trained levels, as metrics for a row.

    ``x2.score`` is the accuracy at twice the longest trained length. ``x2.floor`` is the level's shortcut baseline (the
    accuracy of a simple rule) or, if this version has none, the task's floor. ``x2.skill`` is 0 at ``x2.floor`` and 1
    at ``x2.ceiling``. ``x2.load`` is None if the task itself does not define the level.

    Args:
        trained: The levels of the run, easiest first.
        accuracies: Accuracy at each tested length, or None if the model cannot read that many tokens. The keys are the
            lengths, as multiples of the longest trained length.
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
def _committed_beyond(task: str, version: str, arguments: str, factor: int, load: float | None) -> Level | None:
    """Find the level with the given load at ``factor`` times the longest trained length.

    The result is None if the task itself defines no such level, or if the level has no committed baseline.
    """
    longest = _levels_of(task, version, arguments)[-1]
    own = own_levels(type(longest.task), factor * longest.length) if load else ()
    return next((level for level in own if level.load == load and committed_bounds(level) is not None), None)


_tests_beyond = lru_cache(maxsize=4096)(beyond)


@lru_cache(maxsize=4096)
def _levels_of(task: str, version: str, arguments: str) -> list[Level]:
    """Rebuild the levels that a row names; the list is empty unless the task is built in and has this version."""
    if task not in TASKS or not TASKS.is_built_in(task) or version_of(TASKS[task]) != version:
        return []
    try:
        return [
            Level(TASKS[task](**level["task"]), level["length"], level["load"], level["first_new"])
            for level in json.loads(arguments)["rungs"]
        ]
    except (KeyError, TypeError, UsageError):  # a store may come from anyone
        return []


@lru_cache(maxsize=4096)
def _bounds_of(task: str, version: str, arguments: str) -> dict[str, float]:
    """Look up the baseline and the ceiling of every level that a row names, as metrics; empty if any level has none."""
    found = [committed_bounds(level) for level in _levels_of(task, version, arguments)]
    return {
        f"rung{number}.{field}": value
        for number, bounds in enumerate(found, start=1)
        if bounds is not None and None not in found
        for field, value in (("base", bounds.base), ("ceiling", bounds.ceiling))
    }
