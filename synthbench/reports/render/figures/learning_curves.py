"""Learning curves: a figure per category, a panel per task."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from synthbench.reports.cells import TaskFacts
from synthbench.reports.render.figures.drawing import COMPACT, DARK, PERCENT, Drawing, panels, width_of_panels
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import draw_legend, draw_lines, height_of
from synthbench.reports.report import stem_of


def learning_curves(facts: Facts) -> list[Drawing]:
    """A drawing for every category with a task whose curves have more than one point."""
    if facts.averages is None or facts.averages.empty:
        return []
    validation = facts.averages[facts.averages["split"] == "validation"]
    metric = "accuracy" if (validation["metric"] == "accuracy").any() else "loss"
    curves = validation[validation["metric"] == metric]
    curves = curves.assign(standard_error=curves["std"] / np.sqrt(curves["n"]))  # missing below two seeds
    drawings: list[Drawing] = []
    taken: set[str] = set()
    for category in facts.cells.categories:
        tasks = facts.cells.tasks_of(category)
        in_category = curves[curves["task"].isin([task.label for task in tasks])]
        drawn = [task for task in tasks if len(set(in_category.loc[in_category["task"] == task.label, "step"])) > 1]
        if drawn:
            stem = stem_of(category, taken)
            taken.add(stem)
            drawings.append(_drawing(facts, stem, category, drawn, in_category, metric))
    return drawings


def _drawing(
    facts: Facts, stem: str, category: str, tasks: Sequence[TaskFacts], curves: pd.DataFrame, metric: str
) -> Drawing:
    columns = ["task", "mechanism", "step", "mean", "standard_error", "n"]
    bounds = " Dashed: floor and ceiling." if metric == "accuracy" else ""
    word = "accuracy in per cent" if metric == "accuracy" else "loss"
    return Drawing(
        name=f"learning-curves-{stem}",
        title=f"Learning curves, {category.replace('_', ' ')}",
        caption=(
            f"Validation {word} by training step: mean over seeds; band: one standard error to both sides, from two "
            f"seeds. A run that stopped early keeps its last value.{bounds}{facts.pale_words(curves['mechanism'])}"
        ),
        header=tuple(columns),
        lines=tuple(
            curves[curves["task"].isin([task.label for task in tasks])][columns].itertuples(index=False, name=None)
        ),
        draw=lambda: _draw(facts, tasks, curves, metric),
    )


def _draw(facts: Facts, tasks: Sequence[TaskFacts], curves: pd.DataFrame, metric: str) -> Figure:
    has_pale = len(facts.cells.mechanisms) > len(facts.looks)
    is_accuracy = metric == "accuracy"
    figure, axes = panels(
        [task.label for task in tasks],
        "accuracy, %" if is_accuracy else "loss",
        below=height_of(facts.looks, width_of_panels(len(tasks)), has_pale=has_pale),
        x_label="step",
    )
    highest = 1.0 if is_accuracy else float(curves["mean"].max())
    last_step = int(curves["step"].max())
    by_cell = dict(list(curves.groupby(["task", "mechanism"])))
    for task, axis in zip(tasks, axes, strict=True):
        axis.set_ylim(0, 1.04 * highest)
        if is_accuracy:
            for bound in (task.floor, task.ceiling):
                axis.axhline(bound, color=DARK, linewidth=0.5, linestyle=(0, (4, 3)), zorder=1)
        shown = {
            mechanism.label: by_cell[task.label, mechanism.label]
            for mechanism in facts.cells.mechanisms
            if (task.label, mechanism.label) in by_cell
        }
        columns = {
            label: (curve["step"].to_numpy(), curve["mean"].to_numpy(), curve["standard_error"].to_numpy())
            for label, curve in shown.items()
        }
        draw_lines(
            axis,
            {label: (step, mean) for label, (step, mean, _error) in columns.items()},
            {label: (mean - error, mean + error) for label, (_step, mean, error) in columns.items()},
            facts.looks,
        )
        axis.set_xlim(0, last_step)
        axis.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        axis.xaxis.set_major_formatter(COMPACT)
        if is_accuracy:
            axis.yaxis.set_major_formatter(PERCENT)
    draw_legend(figure, facts.looks, has_pale=has_pale)
    return figure
