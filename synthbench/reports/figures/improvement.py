"""How often a run of one mechanism beats a run of another."""

import math

from synthbench.reports.figures.drawing import Drawing
from synthbench.reports.figures.facts import Facts
from synthbench.reports.figures.matrix import draw_matrix
from synthbench.reports.table import fixed


def improvement(facts: Facts) -> Drawing | None:
    """The drawing; None if fewer than two mechanisms are ranked."""
    if facts.board is None or len(facts.board.entries) < 2:
        return None
    labels = [entry.mechanism.label for entry in facts.board.entries]
    values = facts.board.improvement
    return Drawing(
        name="improvement",
        title="Probability of improvement",
        caption=(
            "Chance that a run of the line's mechanism has a higher skill than one of the column's, on a task drawn at "
            "random; a tie counts half. Best mechanism first."
        ),
        header=("mechanism", "other", "probability"),
        lines=tuple(
            (label, other, float(value))
            for label, line in zip(labels, values, strict=True)
            for other, value in zip(labels, line, strict=True)
            if not math.isnan(value)
        ),
        draw=lambda: draw_matrix(
            values,
            labels,
            labels,
            groups=None,
            colours="PuOr",
            scale="line beats column",
            number=lambda chance: fixed(chance, 2),
        ),
    )
