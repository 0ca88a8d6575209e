"""Skill against a cost: points with their labels in the margin, so that none lies on another."""

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

_LOWEST, _HIGHEST, _NARROWEST = -0.1, 1.04, 0.3
"""The axis of skills shows those that there are, between these bounds and at least so much; others are at the edge."""
_LEFT, _TOP, _BOTTOM = 0.4, 0.08, 0.36
_LEAD = 0.3
"""Inches between the axes and the labels."""


class Point(NamedTuple):
    """One mechanism."""

    label: str
    family: str
    skill: Interval
    costs: tuple[float, ...]
    """One a panel; a panel leaves out what is NaN."""


def draw_scatter(points: Sequence[Point], names: Sequence[str], width: float) -> Figure:
    """Draw skill against every cost, side by side.

    Args:
        points: The mechanisms; shape and colour tell the family.
        names: What each cost is, with its unit.
        width: Of the figure, in inches.
    """
    labels = [shown(point.label) for point in points]
    families = _looks(points)
    right = _LEAD + widest(labels) + 0.04
    panel_width = (width - _LEFT - right - 0.15 * (len(names) - 1)) / len(names)
    columns = max(1, int(width / (0.3 + widest([*map(shown, families)]))))
    below = 0.1 + 1.35 * PITCH * -(-len(families) // columns)
    inner_height = max(1.9, PITCH * len(points))
    figure = Figure(figsize=(width, below + _BOTTOM + inner_height + _TOP))
    low, high = _limits(points)
    for index, name in enumerate(names):
        axis = place(figure, _LEFT + index * (panel_width + 0.15), below + _BOTTOM, panel_width, inner_height)
        axis.set_xlabel(name, labelpad=2)
        axis.set_ylim(low, high)
        axis.tick_params(labelleft=index == 0)
        _draw_panel(axis, points, index, families)
        if index == 0:
            axis.set_ylabel("skill", labelpad=2)
    _draw_labels(axis, points, labels, inner_height, panel_width)
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=3.5)
        for colour, marker in families.values()
    ]
    figure.legend(
        handles=handles, labels=[*map(shown, families)], loc="lower center", ncols=columns, handletextpad=0.2,
        columnspacing=1.0, labelspacing=0.35, borderaxespad=0.2,
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
    low, high = min(point.skill.low for point in points), max(point.skill.high for point in points)
    room = max(0.06 * (high - low), (_NARROWEST - (high - low)) / 2)
    return max(_LOWEST, min(low, _HIGHEST - _NARROWEST) - room), min(_HIGHEST, max(high, _LOWEST + _NARROWEST) + room)


def _looks(points: Sequence[Point]) -> Mapping[str, tuple[str, str]]:
    """Colour and marker of every family, in alphabetical order; those beyond the colours have another shape."""
    families = sorted({point.family for point in points})
    return dict(zip(families, zip(itertools.cycle(COLOURS), itertools.cycle(MARKERS), strict=False), strict=False))


def _draw_panel(axis: Axes, points: Sequence[Point], index: int, families: Mapping[str, tuple[str, str]]) -> None:
    positive = [point.costs[index] for point in points if point.costs[index] > 0]
    low, high = (min(positive), max(positive)) if positive else (1.0, 10.0)
    has_zero = any(point.costs[index] == 0 for point in points)
    # Nothing has no logarithm: it stands at the left edge, under its own tick.
    edge = low / max(3.0, (high / low) ** 0.12)
    axis.set_xscale("log")
    axis.set_xlim((edge / 1.5) if has_zero else low / 1.3, high * 1.3)
    axis.grid(color="#E6E6E6", linewidth=0.4)
    for family, (colour, marker) in families.items():
        own = [point for point in points if point.family == family and not math.isnan(point.costs[index])]
        if not own:
            continue
        x = [point.costs[index] or edge for point in own]
        heights, lows, highs = np.clip([point.skill for point in own], *axis.get_ylim()).T
        strokes(axis, zip(x, lows, strict=True), zip(x, highs, strict=True), color=colour, linewidth=0.6, zorder=3)
        axis.plot(
            x, heights, color=colour, marker=marker, markersize=3.5, linestyle="", markeredgecolor="white",
            markeredgewidth=0.3, zorder=4, clip_on=False,
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


def _draw_labels(axis: Axes, points: Sequence[Point], labels: Sequence[str], height: float, width: float) -> None:
    """Labels to the right of the axes, in the order of the skills, each tied to the height of its point."""
    low, high = axis.get_ylim()
    order = sorted(range(len(points)), key=lambda index: points[index].skill.value)
    skills = np.clip([points[index].skill.value for index in order], low, high)
    places = spread(skills, PITCH * (high - low) / height, low, high)
    left, right = axis.get_xlim()
    costs = [points[index].costs[-1] for index in order]
    known = [(max(cost, left), skill) for cost, skill in zip(costs, skills, strict=True) if not math.isnan(cost)]
    strokes(axis, known, [(right, skill) for _cost, skill in known], color=PALE, linewidth=0.25, zorder=1)
    near, far, beyond = (1 + part / width for part in (0.04, 0.24, 0.28))
    margin = axis.get_yaxis_transform()
    strokes(
        axis, [(near, skill) for skill in skills], [(far, at) for at in places], color=PALE, linewidth=0.4,
        transform=margin, clip_on=False,
    )  # fmt: skip
    for index, at in zip(order, places, strict=True):
        axis.text(beyond, at, labels[index], size=SMALL, color=DARK, va="center_baseline", transform=margin)
