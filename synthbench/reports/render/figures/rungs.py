"""Skill over the rungs of a ladder, a panel a task: how much of its load each mechanism copes with."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from synthbench.reports.cells import TaskFacts
from synthbench.reports.ladder import Ladder, Profile, mean_profile
from synthbench.reports.render.figures.drawing import DARK, PLAIN, SMALL, Drawing, panels, shown, width_of_panels
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import draw_legend, draw_lines, height_of

_Panels = dict[TaskFacts, tuple[Ladder, dict[str, Profile]]]
"""The profile of each mechanism by its label."""


def rungs(facts: Facts) -> Drawing | None:
    """The drawing; None without a ladder, or without a run that has a score."""
    lines: _Panels = {}
    for task, mechanism, cell in facts.cells:
        if task.ladder and (points := mean_profile(task.ladder, cell.rungs.values())):
            lines.setdefault(task, (task.ladder, {}))[1][mechanism.label] = points
    if not lines:
        return None
    drawn = {label for _ladder, profiles in lines.values() for label in profiles}
    return Drawing(
        name="rungs",
        title="Skill over rungs",
        caption=(
            "Skill on each rung of a task over its load: (accuracy − base) / (ceiling − base) on what is new on the "
            "rung, made non-increasing and cut to 0 to 1. Line: mean over seeds; band: lowest to highest. "
            f"The area below a line, in rungs, is the height.{facts.pale_words(drawn)}"
        ),
        header=("category", "task", "mechanism", "rung", "load", "load_in", "mean", "low", "high", "n"),
        lines=tuple(
            (task.category, task.label, label, number, load, ladder.unit, mean, low, high, points.num_runs)
            for task, (ladder, profiles) in lines.items()
            for label, points in profiles.items()
            for number, (load, mean, low, high) in enumerate(
                zip(ladder.loads, points.mean, points.low, points.high, strict=True), start=1
            )
        ),
        draw=lambda: _draw(facts, lines, drawn),
    )


def _draw(facts: Facts, lines: _Panels, drawn: set[str]) -> Figure:
    looks = {label: look for label, look in facts.looks.items() if label in drawn}
    has_pale = len(drawn) > len(looks)
    figure, axes = panels(
        [task.label for task in lines],
        "skill",
        below=height_of(looks, width_of_panels(len(lines)), has_pale=has_pale),
        x_label="load",
        above=0.2,
    )
    category = ""
    for axis, (task, (ladder, profiles)) in zip(axes, lines.items(), strict=True):
        _draw_axes(axis, ladder)
        if task.category != category:
            # Above the first panel of a category stands its name.
            category = task.category
            axis.annotate(
                shown(category.replace("_", " ")), (0, 1), (0, 13), xycoords="axes fraction",
                textcoords="offset points", size=SMALL, color=DARK,
            )  # fmt: skip
        at = np.log2(ladder.loads)
        draw_lines(
            axis,
            {label: (at, np.array(points.mean)) for label, points in profiles.items()},
            {
                label: (np.array(points.low), np.array(points.high)) if points.num_runs > 1 else (at * np.nan,) * 2
                for label, points in profiles.items()
            },
            looks,
        )
    draw_legend(figure, looks, has_pale=has_pale)
    return figure


def _draw_axes(axis: Axes, ladder: Ladder) -> None:
    """Loads on a logarithmic scale with their unit."""
    axis.set_ylim(0, 1.04)
    axis.set_xlim(np.log2(ladder.loads[0]) - 0.1, np.log2(ladder.loads[-1]) + 0.1)
    axis.set_xticks(np.log2(ladder.ticks), [f"{load:g}" for load in ladder.ticks])
    axis.yaxis.set_major_formatter(PLAIN)
    axis.set_xlabel(f"load, {shown(ladder.unit)}", labelpad=1)
