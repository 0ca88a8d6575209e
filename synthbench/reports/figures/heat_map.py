"""Skill of every mechanism on every task, as colours."""

import numpy as np

from synthbench.reports.figures.drawing import Drawing
from synthbench.reports.figures.facts import Facts
from synthbench.reports.figures.matrix import draw_matrix
from synthbench.reports.separation import SMALLEST_GAP
from synthbench.reports.table import fixed, percent


def heat_map(facts: Facts) -> Drawing | None:
    """The drawing; None if no cell has a skill."""
    mechanisms = facts.best_first
    values = np.array([[facts.of.cell(task, mechanism).skill for mechanism in mechanisms] for task in facts.tasks])
    if np.isnan(values).all():
        return None
    num_left_out = len(facts.of.tasks) - len(facts.tasks)
    return Drawing(
        name="heat-map",
        title="Skill by task and mechanism",
        caption=(
            "Mean skill over seeds, (accuracy − floor) / (ceiling − floor); colours end at 0 and 1. Mechanisms by mean "
            f"skill, best first. White: no score. Left out for a gap below {percent(SMALLEST_GAP)} points: "
            f"{num_left_out} tasks."
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
