"""Capacity and length: skill on tests longer or more loaded than the training, a panel a category."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from synthbench.reports.aggregates import over_seeds
from synthbench.reports.cells import Key, MechanismFacts, Row, TaskFacts, clipped, is_known, mechanism_key, task_key
from synthbench.reports.render.figures.drawing import PLAIN, Drawing, panels, width_of_panels
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import draw_legend, draw_lines, height_of


def generalisation(facts: Facts) -> Drawing | None:
    """The drawing; None if nothing was tested out of range."""
    tested = {
        category: tasks
        for category in facts.of.categories
        if (tasks := [task for task in facts.of.tasks_of(category) if _factors(facts, task)])
    }
    lines = [line for category, tasks in tested.items() for line in _lines(facts, category, tasks)]
    if not lines:
        return None
    return Drawing(
        name="generalisation",
        title="Capacity and length generalisation",
        caption=(
            "Mean skill, cut to 0 to 1, at multiples of the length or load of the training, over the tasks of a "
            "category that were tested there; band: 95 % interval for these tasks and other seeds. A run without a "
            "score counts as 0. A mechanism without a run of one of them is left out."
            f"{facts.pale_words({line.mechanism for line in lines})}"
        ),
        header=("category", "tasks", "mechanism", "multiple", "mean", "low", "high", "n"),
        lines=tuple(lines),
        draw=lambda: _draw(facts, lines),
    )


class Line(NamedTuple):
    """One mechanism in one category at one multiple."""

    category: str
    num_tasks: int
    mechanism: str
    multiple: int
    mean: float
    low: float
    """Ends of the interval of the mean; NaN below two seeds."""
    high: float
    num_seeds: int


_Skills = Mapping[tuple[Key, Key], Mapping[int, Sequence[float]]]
"""By cell and seed the skills at 1 and at every multiple."""


def _factors(facts: Facts, task: TaskFacts) -> set[int]:
    """The multiples at which some run of a task has a skill."""
    cells = facts.of.cells_of(task)
    return {factor for cell in cells for factor, skill in cell.stretched.items() if not math.isnan(skill)}


def _lines(facts: Facts, category: str, tasks: Sequence[TaskFacts]) -> list[Line]:
    """Means over the same tasks at every multiple: over those that were tested at all multiples of the category."""
    factors = sorted(set.union(*(_factors(facts, task) for task in tasks)))
    whole = [task for task in tasks if _factors(facts, task) == set(factors)]
    skills = _skills(facts.records, whole, factors)
    # Intervals are drawn towards those of mechanisms with the same seeds.
    by_seeds: dict[tuple[int, ...], list[MechanismFacts]] = {}
    for mechanism in facts.of.mechanisms:
        if seeds := _common_seeds(skills, whole, mechanism):
            by_seeds.setdefault(seeds, []).append(mechanism)
    found: dict[Key, list[Line]] = {}
    for seeds, mechanisms in by_seeds.items():
        runs = np.array([[[skills[task.key, one.key][seed] for seed in seeds] for task in whole] for one in mechanisms])
        weights = np.full(len(whole), 1 / len(whole))
        for place, factor in enumerate([1, *factors]):
            for one, interval in zip(mechanisms, over_seeds(runs[..., place], weights), strict=True):
                line = Line(category, len(whole), one.label, factor, *interval, len(seeds))
                found.setdefault(one.key, []).append(line)
    return [line for mechanism in facts.of.mechanisms for line in found.get(mechanism.key, [])]


def _common_seeds(skills: _Skills, tasks: Sequence[TaskFacts], mechanism: MechanismFacts) -> tuple[int, ...]:
    """The seeds that a mechanism has on all of some tasks."""
    of_tasks = [set(skills.get((task.key, mechanism.key), {})) for task in tasks]
    return tuple(sorted(set.intersection(*of_tasks))) if of_tasks else ()


def _skills(records: Sequence[Row], tasks: Sequence[TaskFacts], factors: Sequence[int]) -> _Skills:
    """Of the runs that were tested at all multiples, and 0 of those without a score."""
    keys = {task.key for task in tasks}
    found: dict[tuple[Key, Key], dict[int, Sequence[float]]] = {}
    for row in records:
        if task_key(row) not in keys:
            continue
        skills = [0.0] * (1 + len(factors))
        if row["status"] == "ok" and is_known(row["score"]):
            metrics = json.loads(row["metrics"])
            skills = [row["skill"], *(metrics.get(f"x{factor}.skill") for factor in factors)]
        if all(map(is_known, skills)):
            found.setdefault((task_key(row), mechanism_key(row)), {})[int(row["seed"])] = [*map(clipped, skills)]
    return found


def _draw(facts: Facts, lines: Sequence[Line]) -> Figure:
    drawn = {line.mechanism for line in lines}
    looks = {label: look for label, look in facts.looks.items() if label in drawn}
    has_pale = len(drawn) > len(looks)
    num_tasks = {line.category: line.num_tasks for line in lines}
    figure, axes = panels(
        [f"{category.replace('_', ' ')} ({number})" for category, number in num_tasks.items()],
        "skill",
        below=height_of(looks, width_of_panels(len(num_tasks)), has_pale=has_pale),
    )
    factors = sorted({line.multiple for line in lines})
    for category, axis in zip(num_tasks, axes, strict=True):
        axis.set_ylim(0, 1.04)
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
            {
                label: (np.array([line.low for line in own]), np.array([line.high for line in own]))
                for label, own in of_mechanism.items()
            },
            looks,
            has_markers=True,
        )
        axis.set_xticks(range(len(factors)), [f"{factor}×" for factor in factors])
        axis.set_xlim(-0.15, len(factors) - 0.85)
        axis.yaxis.set_major_formatter(PLAIN)
    draw_legend(figure, looks, has_pale=has_pale, has_markers=True)
    return figure
