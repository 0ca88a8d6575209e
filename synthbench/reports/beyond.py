"""Tests beyond the trained length: skill on sequences with 2 and 4 times as many tokens."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from synthbench.reports.cells import Cells, MechanismFacts, Runs, TaskFacts, clipped, is_known
from synthbench.reports.ladder import scored_levels
from synthbench.reports.table import NOTHING, Table, fixed, sources_of, table_of

FACTORS = (2, 4)
"""Tested lengths, as multiples of the longest trained sequence; a row may lack their metrics."""

CAPTION = (
    "Skill of the trained models on sequences of 2 and 4 times the tokens of the longest level that they were trained "
    "on, and on that level: mean over seeds, then over tasks, each cut to [0, 1]. Tasks: those in the means. "
    f"{NOTHING}: the mechanism, or its positions, reads no more tokens than it was trained on. No score contains them."
)


class Skills(NamedTuple):
    """The mean skills of a mechanism on one task."""

    trained: float
    """Skill on the level with the longest sequences in training."""
    beyond: tuple[float, ...]
    """Skill at each of ``FACTORS``; NaN if not tested."""


def beyond_table(cells: Cells, runs: Runs) -> Table | None:
    """Tabulate skill on the longest trained level and on longer sequences, one row per mechanism.

    The result is None if no row has a test beyond the trained length.
    """
    reached = {mechanism: _reached(cells, runs, mechanism) for mechanism in cells.mechanisms}
    shown = [mechanism for mechanism in cells.mechanisms if reached[mechanism]]
    if not cells.has_ladder or not shown:
        return None

    def beyond(mechanism: MechanismFacts, place: int) -> str:
        return _text([of.beyond[place] for of in reached[mechanism].values()])

    return table_of(
        "beyond",
        "Beyond the trained length",
        CAPTION,
        ("Mechanism",),
        shown,
        lambda mechanism: (mechanism.label,),
        {
            "Tasks": lambda mechanism: str(len(reached[mechanism])),
            "longest trained": lambda mechanism: _text([of.trained for of in reached[mechanism].values()]),
            "2 x": lambda mechanism: beyond(mechanism, 0),
            "4 x": lambda mechanism: beyond(mechanism, 1),
        },
        sources=sources_of(cells.tasks, shown),
    )


def _reached(cells: Cells, runs: Runs, mechanism: MechanismFacts) -> dict[TaskFacts, Skills]:
    """Collect the mean skills on each task with a test beyond the trained length."""
    found = {}
    for task in cells.tasks:
        rows = [json.loads(row["metrics"]) for row in runs.get((task.key, mechanism.key), ()) if row["status"] == "ok"]
        tested = [
            metrics
            for metrics in rows
            if scored_levels(metrics) and any(f"x{factor}.length" in metrics for factor in FACTORS)
        ]
        if tested:
            beyond = tuple(_mean([_skill(metrics, factor) for metrics in tested]) for factor in FACTORS)
            found[task] = Skills(_mean([clipped(scored_levels(metrics)[-1].skill) for metrics in tested]), beyond)
    return found


def _skill(metrics: Mapping[str, float | None], factor: int) -> float:
    skill = metrics.get(f"x{factor}.skill")
    return math.nan if skill is None or not is_known(skill) else clipped(skill)


def _text(skills: Sequence[float]) -> str:
    mean = _mean(skills)
    return NOTHING if math.isnan(mean) else fixed(mean, 2)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan
