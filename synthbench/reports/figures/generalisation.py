"""Capacity and length: skill on tests longer or more loaded than the training, a panel a category."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from synthbench.reports.figures.drawing import PLAIN, Drawing, panels, width_of_panels
from synthbench.reports.figures.facts import Facts
from synthbench.reports.figures.lines import draw_legend, draw_lines, height_of
from synthbench.reports.grid import Row, TaskFacts, mechanism_key, task_key

_LOWEST, _HIGHEST = -0.1, 1.04
"""Skills between which a line is drawn; one outside is drawn at the edge."""


def generalisation(facts: Facts) -> Drawing | None:
    """The drawing; None if nothing was tested out of range."""
    tested = {
        category: tasks
        for category in facts.of.categories
        if (tasks := [task for task in facts.of.tasks_of(category) if _factors(facts, task)])
    }
    if not tested:
        return None
    lines = [line for category, tasks in tested.items() for line in _lines(facts, category, tasks)]
    return Drawing(
        name="generalisation",
        title="Capacity and length generalisation",
        caption=(
            "Mean skill at multiples of the length or load of the training, over the tasks of a category that were "
            "tested there; band: one standard error over seeds to both sides. A mechanism without a run of one of them "
            f"is left out. Skills outside of {_LOWEST:g} to {_HIGHEST:g} are drawn at the edge.{facts.pale_words}"
        ),
        header=("category", "tasks", "mechanism", "multiple", "mean", "standard_error", "n"),
        lines=tuple(lines),
        draw=lambda: _draw(facts, list(tested), lines),
    )


class Line(NamedTuple):
    """One mechanism in one category at one multiple."""

    category: str
    num_tasks: int
    mechanism: str
    multiple: int
    mean: float
    standard_error: float
    """NaN below two seeds."""
    num_seeds: int


def _factors(facts: Facts, task: TaskFacts) -> set[int]:
    return {factor for cell in facts.of.cells_of(task) for factor in cell.stretched}


def _lines(facts: Facts, category: str, tasks: Sequence[TaskFacts]) -> list[Line]:
    """Means over the same tasks at every multiple: over those that were tested at all multiples of the category."""
    factors = sorted(set.union(*(_factors(facts, task) for task in tasks)))
    whole = [task for task in tasks if _factors(facts, task) == set(factors)]
    skills = _skills(facts.records, whole, factors)
    lines: list[Line] = []
    for mechanism in facts.of.mechanisms:
        cells = [skills.get((task.key, mechanism.key), {}) for task in whole]
        seeds = sorted(set.intersection(*(set(cell) for cell in cells))) if cells else []
        if not seeds:
            continue
        # [tasks, seeds, multiples] to the mean over tasks
        means = np.array([[cell[seed] for seed in seeds] for cell in cells]).mean(axis=0)
        for factor, values in zip([1, *factors], means.T, strict=True):
            error = float(values.std(ddof=1)) / math.sqrt(len(seeds)) if len(seeds) > 1 else math.nan
            mean = float(values.mean())
            lines.append(Line(category, len(whole), mechanism.label, factor, mean, error, len(seeds)))
    return lines


def _skills(
    records: Sequence[Row], tasks: Sequence[TaskFacts], factors: Sequence[int]
) -> dict[tuple[object, object], dict[int, list[float]]]:
    """By cell and seed the skills at 1 and at every multiple, of the runs that have all of them."""
    keys = {task.key for task in tasks}
    found: dict[tuple[object, object], dict[int, list[float]]] = {}
    for row in records:
        if row["status"] != "ok" or task_key(row) not in keys:
            continue
        metrics = json.loads(row["metrics"])
        skills = [row["skill"], *(metrics.get(f"x{factor}.skill") for factor in factors)]
        if not any(map(pd.isna, skills)):
            found.setdefault((task_key(row), mechanism_key(row)), {})[int(row["seed"])] = skills
    return found


def _draw(facts: Facts, categories: Sequence[str], lines: Sequence[Line]) -> Figure:
    has_pale = len(facts.of.mechanisms) > len(facts.looks)
    num_tasks = {line.category: line.num_tasks for line in lines}
    figure, axes = panels(
        [f"{category.replace('_', ' ')} ({num_tasks.get(category, 0)})" for category in categories],
        "skill",
        below=height_of(facts.looks, width_of_panels(len(categories)), has_pale=has_pale),
    )
    factors = sorted({line.multiple for line in lines})
    for category, axis in zip(categories, axes, strict=True):
        axis.set_ylim(_LOWEST, _HIGHEST)
        of_mechanism: dict[str, list[Line]] = {}
        for line in lines:
            if line.category == category:
                of_mechanism.setdefault(line.mechanism, []).append(line)
        draw_lines(
            axis,
            {
                label: (
                    np.array([factors.index(line.multiple) for line in own], dtype=float),
                    np.array([line.mean for line in own]),
                )
                for label, own in of_mechanism.items()
            },
            {label: np.array([line.standard_error for line in own]) for label, own in of_mechanism.items()},
            facts.looks,
            has_markers=True,
        )
        axis.set_xticks(range(len(factors)), [f"{factor}×" for factor in factors])
        axis.set_xlim(-0.15, len(factors) - 0.85)
        axis.yaxis.set_major_formatter(PLAIN)
    draw_legend(figure, facts.looks, has_pale=has_pale, has_markers=True)
    return figure
