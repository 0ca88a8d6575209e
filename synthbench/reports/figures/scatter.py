"""Skill against costs: a panel a cost, each with labels in its margin, so that none lies on another."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from scipy.optimize import isotonic_regression

from synthbench.reports.aggregates import Interval
from synthbench.reports.figures.drawing import (
    COLOURS,
    COMPACT,
    DARK,
    MARKERS,
    PALE,
    PITCH,
    PLAIN,
    SMALL,
    place,
    shown,
    strokes,
    widest,
)

_NUM_BEST = 8
"""Points that have a label whatever they cost: those with the highest skill."""
_HIGHEST, _NARROWEST = 1.04, 0.3
"""The axis of skills shows those that there are, between 0 and the highest and at least so much."""
_LEFT, _TOP, _BOTTOM, _GAP = 0.4, 0.08, 0.36, 0.12
_LEAD = 0.34
"""Inches between the axes and the labels."""


class Point(NamedTuple):
    """One mechanism."""

    label: str
    family: str
    skill: Interval
    costs: tuple[float, ...]
    """One a panel; a panel leaves out what is NaN."""


def labelled(points: Sequence[Point], index: int) -> list[Point]:
    """The points that have a label in a panel: the best ones, and those that no cheaper one matches.

    Args:
        points: In any order.
        index: Of the panel.

    Returns:
        Lowest skill first.
    """
    known = [point for point in points if not math.isnan(point.costs[index])]
    best = sorted(known, key=lambda point: -point.skill.value)[:_NUM_BEST]
    front: list[Point] = []
    for point in sorted(known, key=lambda point: (point.costs[index], -point.skill.value)):
        if not front or point.skill.value > front[-1].skill.value:
            front.append(point)
    return sorted({*best, *front}, key=lambda point: (point.skill.value, point.label))


def draw_scatter(points: Sequence[Point], names: Sequence[str], width: float) -> Figure:
    """Draw skill against every cost, side by side.

    Args:
        points: The mechanisms; shape and colour tell the family of those with a label, the others are pale.
        names: What each cost is, with its unit.
        width: Of the figure, in inches.
    """
    of_panels = [labelled(points, index) for index in range(len(names))]
    families = _looks([point for own in of_panels for point in own])
    has_pale = any(len(own) < len(points) for own in of_panels)
    right = [_LEAD + widest([shown(point.label) for point in own]) + 0.04 for own in of_panels]
    panel_width = (width - _LEFT - sum(right) - _GAP * (len(names) - 1)) / len(names)
    columns = max(1, int(width / (0.3 + widest([*map(shown, families)]))))
    below = 0.1 + 1.35 * PITCH * -(-(len(families) + has_pale) // columns)
    inner_height = max(1.9, PITCH * max(map(len, of_panels)))
    figure = Figure(figsize=(width, below + _BOTTOM + inner_height + _TOP))
    left = _LEFT
    for index, (name, own) in enumerate(zip(names, of_panels, strict=True)):
        axis = place(figure, left, below + _BOTTOM, panel_width, inner_height)
        axis.set_xlabel(name, labelpad=2)
        axis.set_ylim(*_limits(points))
        axis.tick_params(labelleft=index == 0)
        _draw_panel(axis, points, own, index, families)
        _draw_labels(axis, own, index, families, inner_height, panel_width)
        if index == 0:
            axis.set_ylabel("skill", labelpad=2)
        left += panel_width + right[index] + _GAP
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=3.5)
        for colour, marker in [*families.values(), *([(PALE, "o")] if has_pale else [])]
    ]
    figure.legend(
        handles=handles, labels=[*map(shown, families), *(["others"] if has_pale else [])], loc="lower center",
        ncols=columns, handletextpad=0.2, columnspacing=1.0, labelspacing=0.35, borderaxespad=0.2,
    )  # fmt: skip
    return figure


def spread(wanted: Float[np.ndarray, " labels"], pitch: float, low: float, high: float) -> Float[np.ndarray, " labels"]:
    """Places at least a pitch apart, in the same order and as near to the wanted ones as that allows.

    Args:
        wanted: In ascending order.
        pitch: The smallest distance.
        low: No place lies below.
        high: Nor above, if there is room for all between.
    """
    steps = pitch * np.arange(len(wanted))
    fitted = isotonic_regression(wanted - steps).x
    places: Float[np.ndarray, " labels"] = np.clip(fitted, low, max(low, high - float(steps[-1]))) + steps
    return places


def _limits(points: Sequence[Point]) -> tuple[float, float]:
    """Ends of the axis of skills."""
    low = min(np.fmin(point.skill.low, point.skill.value) for point in points)
    high = max(np.fmax(point.skill.high, point.skill.value) for point in points)
    room = max(0.06 * (high - low), (_NARROWEST - (high - low)) / 2)
    return max(-0.02, float(low) - room), min(_HIGHEST, float(high) + room)


def _looks(points: Sequence[Point]) -> Mapping[str, tuple[str, str]]:
    """Colour and marker of every family, in alphabetical order; those beyond the colours have another shape."""
    families = sorted({point.family for point in points})
    return dict(zip(families, zip(itertools.cycle(COLOURS), itertools.cycle(MARKERS), strict=False), strict=False))


def _draw_panel(
    axis: Axes,
    points: Sequence[Point],
    named: Sequence[Point],
    index: int,
    families: Mapping[str, tuple[str, str]],
) -> None:
    positive = [point.costs[index] for point in points if point.costs[index] > 0]
    low, high = (min(positive), max(positive)) if positive else (1.0, 10.0)
    has_zero = any(point.costs[index] == 0 for point in points)
    # Nothing has no logarithm: it stands at the left edge, under its own tick.
    edge = low / max(3.0, (high / low) ** 0.12)
    axis.set_xscale("log")
    axis.set_xlim((edge / 1.5) if has_zero else low / 1.3, high * 1.3)
    axis.grid(color="#E6E6E6", linewidth=0.4)
    others = [point for point in points if point not in named and not math.isnan(point.costs[index])]
    for own, colour, marker in [
        (others, PALE, "o"),
        *(([point for point in named if point.family == family], *look) for family, look in families.items()),
    ]:
        if not own:
            continue
        x = [point.costs[index] or edge for point in own]
        heights, lows, highs = np.array([point.skill for point in own]).T
        order = 2 if own is others else 3
        strokes(axis, zip(x, lows, strict=True), zip(x, highs, strict=True), color=colour, linewidth=0.6, zorder=order)
        axis.plot(
            x, heights, color=colour, marker=marker, markersize=2.2 if own is others else 3.5, linestyle="",
            markeredgecolor="white", markeredgewidth=0.3, zorder=order + 2, clip_on=False,
        )  # fmt: skip
    ticks = _ticks(low / 1.3, high * 1.3)
    axis.set_xticks([*([edge] if has_zero else []), *ticks], [*(["0"] if has_zero else []), *map(COMPACT, ticks)])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(PLAIN)


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with their twofold and fivefold, then all multiples, if fewer than two lie between."""
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for multiples in ((1,), (1, 2, 5), range(1, 10)):
        ticks = [multiple * power for power in powers for multiple in multiples if low <= multiple * power <= high]
        if len(ticks) > 1:
            break
    return ticks


def _draw_labels(
    axis: Axes,
    named: Sequence[Point],
    index: int,
    families: Mapping[str, tuple[str, str]],
    height: float,
    width: float,
) -> None:
    """Labels to the right of the axes, in the order of the skills, each tied to its point and with its marker."""
    low, high = axis.get_ylim()
    skills = np.array([point.skill.value for point in named])
    places = spread(skills, PITCH * (high - low) / height, low, high)
    left, right = axis.get_xlim()
    starts = [(max(point.costs[index], left), skill) for point, skill in zip(named, skills, strict=True)]
    strokes(axis, starts, [(right, skill) for skill in skills], color=PALE, linewidth=0.25, zorder=1)
    near, far, mark, beyond = (1 + part / width for part in (0.04, 0.22, 0.26, 0.32))
    margin = axis.get_yaxis_transform()
    strokes(
        axis, [(near, skill) for skill in skills], [(far, at) for at in places], color=PALE, linewidth=0.4,
        transform=margin, clip_on=False,
    )  # fmt: skip
    for point, at in zip(named, places, strict=True):
        colour, marker = families[point.family]
        axis.plot(
            [mark], [at], color=colour, marker=marker, markersize=2.5, linestyle="", transform=margin, clip_on=False
        )
        axis.text(beyond, at, shown(point.label), size=SMALL, color=DARK, va="center_baseline", transform=margin)
