"""Skill over the rungs of a ladder, a panel a task: how much of its load each mechanism copes with."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from synthbench.reports.cells import TaskFacts
from synthbench.reports.ladder import Profile, mean_profile
from synthbench.reports.render.figures.drawing import DARK, PLAIN, SMALL, Drawing, panels, shown, width_of_panels
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import draw_legend, draw_lines, height_of


class Line(NamedTuple):
    """One mechanism on one task."""

    task: TaskFacts
    mechanism: str
    points: Profile


def rungs(facts: Facts) -> Drawing | None:
    """The drawing; None without a ladder, or without a run that has a score."""
    lines = [
        Line(task, mechanism.label, points)
        for task in facts.cells.tasks
        for mechanism in facts.cells.mechanisms
        if task.ladder and (points := mean_profile(task.ladder, facts.cells.cell(task, mechanism).rungs.values()))
    ]
    if not lines:
        return None
    return Drawing(
        name="rungs",
        title="Skill over rungs",
        caption=(
            "Skill on each rung of a task over its load: (accuracy − base) / (ceiling − base) on what is new on the "
            "rung, made non-increasing and cut to 0 to 1. Line: mean over seeds; band: lowest to highest. "
            f"The area below a line, in rungs, is the height.{facts.pale_words({line.mechanism for line in lines})}"
        ),
        header=("category", "task", "mechanism", "rung", "load", "load_in", "mean", "low", "high", "n"),
        lines=tuple(
            (
                *(line.task.category, line.task.label, line.mechanism, number, load, line.task.ladder.unit),
                *(mean, low, high, line.points.num_runs),
            )
            for line in lines
            if line.task.ladder
            for number, (load, mean, low, high) in enumerate(
                zip(line.task.ladder.loads, line.points.mean, line.points.low, line.points.high, strict=True), start=1
            )
        ),
        draw=lambda: _draw(facts, lines),
    )


def _draw(facts: Facts, lines: Sequence[Line]) -> Figure:
    drawn = {line.mechanism for line in lines}
    looks = {label: look for label, look in facts.looks.items() if label in drawn}
    has_pale = len(drawn) > len(looks)
    tasks = list(dict.fromkeys(line.task for line in lines))
    figure, axes = panels(
        [task.label for task in tasks],
        "skill",
        below=height_of(looks, width_of_panels(len(tasks)), has_pale=has_pale),
        x_label="load",
        above=0.2,
    )
    for position, (task, axis) in enumerate(zip(tasks, axes, strict=True)):
        profiles = {line.mechanism: line.points for line in lines if line.task == task}
        _draw_axes(axis, task, is_first=position == 0 or task.category != tasks[position - 1].category)
        at = np.log2(task.ladder.loads if task.ladder else ())
        draw_lines(
            axis,
            {label: (at, np.array(points.mean)) for label, points in profiles.items()},
            {
                label: (np.array(points.low), np.array(points.high)) if points.num_runs > 1 else (at * np.nan,) * 2
                for label, points in profiles.items()
            },
            looks,
        )
    draw_legend(figure, looks, has_pale=has_pale, has_markers=False)
    return figure


def _draw_axes(axis: Axes, task: TaskFacts, *, is_first: bool) -> None:
    """Loads on a logarithmic scale with their unit; above the first panel of a category stands its name."""
    loads, ticks = (task.ladder.loads, task.ladder.ticks) if task.ladder else ((), ())
    axis.set_ylim(0, 1.04)
    axis.set_xlim(np.log2(loads[0]) - 0.1, np.log2(loads[-1]) + 0.1)
    axis.set_xticks(np.log2(ticks), [f"{load:g}" for load in ticks])
    axis.yaxis.set_major_formatter(PLAIN)
    axis.set_xlabel(f"load, {shown(task.ladder.unit)}" if task.ladder else "load", labelpad=1)
    if is_first:
        category = shown(task.category.replace("_", " "))
        axis.annotate(
            category, (0, 1), (0, 13), xycoords="axes fraction", textcoords="offset points", size=SMALL, color=DARK
        )
