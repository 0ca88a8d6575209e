"""Skill against size: the state of a layer, and parameters."""

import math
from collections.abc import Callable

from synthbench.reports.leaderboard import Entry
from synthbench.reports.render.figures.drawing import DOUBLE, SINGLE, Drawing
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.scatter import MOST_NAMED, Point, draw_scatter

_SIZES: dict[str, tuple[str, Callable[[Entry], float]]] = {
    "state": ("state of a layer, numbers", lambda entry: entry.mechanism.state),
    "parameters": ("parameters", lambda entry: entry.mechanism.num_parameters),
}
"""What is drawn, each with the label of its axis."""


def skill_state(facts: Facts) -> Drawing | None:
    """Skill against state and parameters; None if the ranked mechanisms differ in neither."""
    entries = facts.board.entries if facts.board else ()
    telling = {
        name: (axis, size_of)
        for name, (axis, size_of) in _SIZES.items()
        if len({size for entry in entries if not math.isnan(size := size_of(entry))}) > 1
    }
    points = [
        Point(entry.mechanism.label, entry.mechanism.family, entry.skill, sizes)
        for entry in entries
        if not all(map(math.isnan, sizes := tuple(size_of(entry) for _axis, size_of in telling.values())))
    ]
    if not points:
        return None
    axes = [axis for axis, _size_of in telling.values()]
    return Drawing(
        name="skill-state",
        title="Skill against state and parameters",
        caption=(
            "Mean skill, with equal weight for all categories and its 95 % interval for these tasks and other seeds. "
            "State: numbers that one layer keeps after a whole sequence, the largest over the tasks. Parameters: in "
            "the mechanisms of all layers. A size that all share has no panel. Colour: family; shape: mechanism."
            + " Numbers: by mean skill, best first."
            * (len(points) > MOST_NAMED)
        ),
        header=("mechanism", "family", *telling, "skill", "low", "high"),
        lines=tuple((point.label, point.family, *point.costs, *point.skill) for point in points),
        draw=lambda: draw_scatter(points, axes, DOUBLE if len(axes) > 1 else SINGLE),
    )
