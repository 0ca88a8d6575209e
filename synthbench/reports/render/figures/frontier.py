"""The frontier: mean skill of some mechanisms at several sizes of their state."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from synthbench.reports.aggregates import Interval
from synthbench.reports.cells import MechanismFacts
from synthbench.reports.render.figures.drawing import COMPACT, SINGLE, Drawing, looks, place
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import draw_legend, draw_lines, height_of

_HEIGHT = 2.2
"""Of the axes, in inches."""


class _Setting(NamedTuple):
    """One point of a line."""

    words: str
    state: float
    skill: Interval


def frontier(facts: Facts) -> Drawing | None:
    """The drawing; None unless some mechanism has settings that differ in their state and in nothing around it.

    All points are over the same tasks and seeds: those that most of these settings have.
    """
    sized = [variant for variant in facts.variants if variant.is_of_another_size]
    if not sized:
        return None
    common = Counter((variant.tasks, variant.seeds) for variant in sized).most_common(1)[0][0]
    lines: dict[MechanismFacts, list[_Setting]] = {}
    for variant in sized:
        if (variant.tasks, variant.seeds) == common:
            main, other = variant.intervals()
            points = lines.setdefault(variant.main, [_Setting(variant.words[0], variant.main.state, main)])
            points.append(_Setting(variant.words[1], variant.variant.state, other))
    ordered = {mechanism.label: sorted(points, key=lambda each: each.state) for mechanism, points in lines.items()}
    tasks, seeds = common
    return Drawing(
        name="frontier",
        title="Skill at several sizes of the state",
        caption=(
            f"Mean skill over {len(tasks)} tasks and {len(seeds)} {'seed' if len(seeds) == 1 else 'seeds'}, with equal "
            "weight for all categories, against the numbers that one layer keeps after a whole sequence, the largest "
            "over the tasks; a line for each mechanism. Where no option of a mechanism sets its state, the whole model "
            "is narrower or wider. Band: 95 % interval for these tasks and other seeds."
        ),
        header=("mechanism", "setting", "state", "skill", "low", "high"),
        lines=tuple(
            (label, each.words, each.state, *each.skill) for label, points in ordered.items() for each in points
        ),
        draw=lambda: _draw(ordered),
    )


def _draw(ordered: dict[str, list[_Setting]]) -> Figure:
    of_lines = looks(list(ordered))
    has_pale = len(ordered) > len(of_lines)
    below = height_of(of_lines, SINGLE, has_pale=has_pale) + 0.3
    figure = Figure(figsize=(SINGLE, below + _HEIGHT + 0.1))
    axis = place(figure, 0.42, below, SINGLE - 0.42 - 0.1, _HEIGHT)
    axis.grid(color="#E6E6E6", linewidth=0.4)
    axis.set_xscale("log")
    axis.set_ylim(0, 1.02)
    columns = {label: np.array([(each.state, *each.skill) for each in points]).T for label, points in ordered.items()}
    draw_lines(
        axis,
        {label: (states, skills) for label, (states, skills, _low, _high) in columns.items()},
        {label: (low, high) for label, (_states, _skills, low, high) in columns.items()},
        of_lines,
    )
    axis.set_xlabel("state of a layer, numbers", labelpad=1)
    axis.set_ylabel("mean skill", labelpad=2)
    axis.xaxis.set_major_formatter(COMPACT)
    draw_legend(figure, of_lines, has_pale=has_pale, has_markers=False)
    return figure
