"""A heat map of the skills of all mechanisms on all tasks."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from synthbench.reports.cells import MechanismFacts, TaskFacts
from synthbench.reports.render.figures.drawing import DARK, DOUBLE, SINGLE, SMALL, Drawing, shown, widest
from synthbench.reports.render.figures.lines import best_first
from synthbench.reports.report import Report
from synthbench.reports.table import fixed, skill_words
from synthbench.reports.verdicts import SMALLEST_GAP, ranked_tasks

_FEW = 12
"""Largest number of columns with which every field shows its number."""


def heat_map(report: Report) -> Drawing | None:
    """Draw the skills of all mechanisms on all ranked tasks as a heat map; None if no skill is known."""
    tasks, mechanisms = ranked_tasks(report.cells), best_first(report)
    values = np.array([[report.cells.cell(task, mechanism).skill for mechanism in mechanisms] for task in tasks])
    if np.isnan(values).all():
        return None
    left_out = ", ".join(task.label for task in report.cells.tasks if task not in tasks)
    return Drawing(
        name="heat-map",
        title="Skill by task and mechanism",
        caption=(
            f"Mean over seeds of the {skill_words(has_ladder=report.cells.has_ladder)}. Mechanisms by mean skill "
            "(all categories weigh the same), best first. White: no score."
            + f" Left out, with less than {100 * SMALLEST_GAP:.0f} points between floor and ceiling: {left_out}."
            * bool(left_out)
        ),
        header=("category", "task", "mechanism", "skill"),
        lines=tuple(
            (task.category, task.label, mechanism.label, float(value))
            for task, line in zip(tasks, values, strict=True)
            for mechanism, value in zip(mechanisms, line, strict=True)
        ),
        draw=lambda: _draw_matrix(values, tasks, mechanisms),
    )


def _draw_matrix(
    values: Float[np.ndarray, "tasks mechanisms"], tasks: Sequence[TaskFacts], mechanisms: Sequence[MechanismFacts]
) -> Figure:
    """Draw a heat map with a row per task and a column per mechanism.

    Colours are for values from 0 to 1; a value outside takes the colour of the nearer end, and NaN stays white. Each
    category is named once, at the row of its first task.
    """
    lines = [shown(task.label) for task in tasks]
    columns = [shown(mechanism.label) for mechanism in mechanisms]
    has_numbers = len(columns) <= _FEW
    height = 0.14 * len(lines) + widest(columns) + 0.6
    figure = Figure(figsize=(SINGLE if has_numbers else DOUBLE, height), layout="constrained")
    axis = figure.subplots()
    fields = axis.pcolormesh(values, cmap="cividis", vmin=0, vmax=1, edgecolors="white", linewidth=0.4)
    axis.invert_yaxis()
    axis.spines[:].set_visible(False)
    axis.set_yticks(np.arange(len(lines)) + 0.5, lines)
    axis.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=90)
    axis.tick_params(length=0, pad=2, labeltop=True, labelbottom=False)
    if has_numbers:
        for (line, column), value in np.ndenumerate(values):
            if not math.isnan(value):
                axis.text(
                    column + 0.5, line + 0.5, fixed(float(value), 2), size=SMALL - 0.5, ha="center",
                    color="white" if value < 0.65 else "black", va="center_baseline",
                )  # fmt: skip
    firsts = [index for index, task in enumerate(tasks) if index == 0 or task.category != tasks[index - 1].category]
    axis.hlines(firsts[1:], 0, len(columns), color="white", linewidth=3)
    right = axis.secondary_yaxis("right")
    names = [shown(tasks[first].category.replace("_", " ")) for first in firsts]
    right.set_yticks([first + 0.5 for first in firsts], names)
    right.tick_params(length=0, pad=2, labelcolor=DARK)
    right.spines[:].set_visible(False)
    bar = figure.colorbar(fields, location="bottom", shrink=0.6, aspect=30, pad=0.02, ticks=[0, 0.5, 1], label="skill")
    bar.outline.set_visible(False)
    for solid in bar.ax.collections:
        solid.set_rasterized(rasterized=False)
    bar.ax.tick_params(length=0, pad=1.5)
    return figure
