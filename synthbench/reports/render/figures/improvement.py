"""How often a run of one mechanism beats a run of another."""

import math

import numpy as np

from synthbench.reports.render.figures.drawing import Drawing
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.matrix import draw_matrix
from synthbench.reports.table import fixed, tie_words


def improvement(facts: Facts) -> Drawing | None:
    """The drawing; None if fewer than two mechanisms are ranked."""
    if facts.board is None or len(facts.board.entries) < 2:
        return None
    labels = [entry.mechanism.label for entry in facts.board.entries]
    values = np.array(
        [[math.nan if chance is None else chance.value for chance in line] for line in facts.board.improvement]
    )
    return Drawing(
        name="improvement",
        title="Probability of improvement",
        caption=(
            "Chance that a run of the row's mechanism has a higher skill than a run of the column's, on a task drawn "
            f"at random, with equal weight for all categories; {tie_words(has_ladder=facts.board.has_ladder)}. Best "
            "mechanism first. The CSV file has a separate 95 % interval of each for tasks like these."
        ),
        header=("mechanism", "other", "probability", "low", "high"),
        lines=tuple(
            (label, other, *chance)
            for label, line in zip(labels, facts.board.improvement, strict=True)
            for other, chance in zip(labels, line, strict=True)
            if chance is not None
        ),
        draw=lambda: draw_matrix(
            values,
            labels,
            labels,
            groups=None,
            colours="PuOr",
            scale="row beats column",
            number=lambda chance: fixed(chance, 2),
        ),
    )
