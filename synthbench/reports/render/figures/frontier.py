"""The frontier: mean skill of some mechanisms at several sizes of their state."""

import numpy as np
from matplotlib.figure import Figure

from synthbench.reports.aggregates import Interval
from synthbench.reports.render.figures.drawing import COMPACT, Drawing, looks
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import draw_lines, panel_of_shares
from synthbench.reports.table import counted
from synthbench.reports.variants import of_sizes

_HEIGHT = 2.2
"""Of the axes, in inches."""


def frontier(facts: Facts) -> Drawing | None:
    """The drawing; None unless some mechanism has settings that differ in their state and in nothing around it.

    All points are over the same tasks and seeds: those that most of these settings have.
    """
    sized = of_sizes(facts.variants)
    if not sized:
        return None
    lines: dict[str, list[tuple[float, str, Interval]]] = {}
    for variant in sized:
        main, other = variant.intervals()
        points = lines.setdefault(variant.main.label, [(variant.main.state, variant.words[0], main)])
        points.append((variant.variant.state, variant.words[1], other))
    for points in lines.values():
        points.sort(key=lambda point: point[0])
    num_tasks, num_seeds = len(sized[0].tasks), len(sized[0].seeds)
    return Drawing(
        name="frontier",
        title="Skill at several sizes of the state",
        caption=(
            f"Mean skill over {num_tasks} tasks and {counted(num_seeds, 'seed')}, with equal "
            "weight for all categories, against the numbers that one layer keeps after a whole sequence, the largest "
            "over the tasks; a line for each mechanism. Where no option of a mechanism sets its state, the whole model "
            "is narrower or wider. Band: 95 % interval for these tasks and other seeds."
        ),
        header=("mechanism", "setting", "state", "skill", "low", "high"),
        lines=tuple((label, words, state, *skill) for label, points in lines.items() for state, words, skill in points),
        draw=lambda: _draw(
            {label: [(state, *skill) for state, _words, skill in points] for label, points in lines.items()}
        ),
    )


def _draw(lines: dict[str, list[tuple[float, ...]]]) -> Figure:
    of_lines = looks(list(lines))
    figure, axis = panel_of_shares(
        of_lines, "state of a layer, numbers", "mean skill", height=_HEIGHT, has_pale=len(lines) > len(of_lines)
    )
    axis.set_xscale("log")
    columns = {label: np.array(points).T for label, points in lines.items()}
    draw_lines(
        axis,
        {label: (states, skills) for label, (states, skills, _low, _high) in columns.items()},
        {label: (low, high) for label, (_states, _skills, low, high) in columns.items()},
        of_lines,
    )
    axis.xaxis.set_major_formatter(COMPACT)
    return figure
