"""Skill of every mechanism on every task, as colours."""

import numpy as np

from synthbench.reports.render.figures.drawing import Drawing
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.matrix import draw_matrix
from synthbench.reports.table import fixed, skill_words
from synthbench.reports.verdicts import SMALLEST_GAP


def heat_map(facts: Facts) -> Drawing | None:
    """The drawing; None if no cell has a skill."""
    mechanisms = facts.best_first
    values = np.array([[facts.cells.cell(task, mechanism).skill for mechanism in mechanisms] for task in facts.tasks])
    if np.isnan(values).all():
        return None
    left_out = ", ".join(task.label for task in facts.cells.tasks if task not in facts.tasks)
    return Drawing(
        name="heat-map",
        title="Skill by task and mechanism",
        caption=(
            f"Mean skill over seeds, {skill_words(has_ladder=facts.cells.has_ladder)}. Mechanisms by mean skill "
            "(all categories weigh the same), best first. White: no score."
            + f" Left out, with less than {100 * SMALLEST_GAP:.0f} points between floor and ceiling: {left_out}."
            * bool(left_out)
        ),
        header=("category", "task", "mechanism", "skill"),
        lines=tuple(
            (task.category, task.label, mechanism.label, float(value))
            for task, line in zip(facts.tasks, values, strict=True)
            for mechanism, value in zip(mechanisms, line, strict=True)
        ),
        draw=lambda: draw_matrix(
            values,
            [task.label for task in facts.tasks],
            [mechanism.label for mechanism in mechanisms],
            groups=[task.category for task in facts.tasks],
            colours="cividis",
            scale="skill",
            number=lambda skill: fixed(skill, 2),
        ),
    )
