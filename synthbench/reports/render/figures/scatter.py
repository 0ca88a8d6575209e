"""Skill against costs: one panel per cost, a number or a name at each point, and a legend of all mechanisms.

The colour of a point shows the mechanism's family, and the marker shows the mechanism within the family. The text of a
point is placed where it covers nothing, with a line to the point if the point is far away. Points without room for text
are identified by colour and marker.
"""

import itertools
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import NullLocator
from matplotlib.transforms import Bbox

from synthbench.reports.aggregates import Interval
from synthbench.reports.render.figures.drawing import (
    COLOURS,
    COMPACT,
    DOUBLE,
    MARKERS,
    PALE,
    PLAIN,
    SINGLE,
    SMALL,
    Drawing,
    panels,
    shown,
)
from synthbench.reports.report import Report

FAMILY_COLOURS = (*COLOURS, "#8C564B", "#6A3D9A", "#7A7A00", "#882255", "#4D6B8A")
"""The colours of lines and further colours, since there are more families than coloured lines."""
MOST_NAMED = 12
"""Largest number of points that are labelled by name; if there are more, all are numbered."""
_HIGHEST, _NARROWEST = 1.04, 0.3
"""Largest upper end and smallest range of the axis of skills."""
_HEIGHT = 3.0
"""Height of a panel in inches; panels with names are lower."""
_MARK = 2.5
"""Half the width of a marker, in points (1/72 inch)."""
_DISTANCES = np.arange(_MARK + 1.8, 65, 3.6)
"""Distances between a marker and its text that are tried, in points (1/72 inch)."""
_TURNS = np.pi / 8 * np.array([0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8])
"""Directions from a marker to its text, as angles in the order in which they are tried; 0 is to the right."""


_SIZES = {"state": ("state of a layer, numbers", "state"), "parameters": ("parameters", "num_parameters")}
"""Sizes to draw: the label of each axis and the field of the mechanism's facts."""


class Point(NamedTuple):
    """One mechanism in the plot: its skill and its costs, and how it is drawn."""

    label: str
    family: str
    skill: Interval
    costs: Sequence[float]
    """Costs, one per panel; a panel leaves out a point whose cost is NaN."""
    colour: str = ""
    marker: str = ""
    text: str = ""
    """The text at the point: the mechanism's number in the key, or its name."""


def styled(points: Sequence[Point]) -> list[Point]:
    """Choose the colour, marker and text of each point: the colour shows the family, the marker the mechanism in it.

    The text is the label of the mechanism. If there are more than ``MOST_NAMED`` points, it is the number of the point,
    counted from 1.
    """
    families = sorted({point.family for point in points})
    colours = dict(zip(families, itertools.cycle(FAMILY_COLOURS), strict=False))
    markers = {family: itertools.cycle(MARKERS) for family in families}
    return [
        point._replace(
            colour=colours[point.family],
            marker=next(markers[point.family]),
            text=shown(point.label) if len(points) <= MOST_NAMED else str(number),
        )
        for number, point in enumerate(points, start=1)
    ]


def skill_state(report: Report) -> Drawing | None:
    """Draw skill against state size and number of parameters; None if the ranked mechanisms differ in neither."""
    entries = report.board.entries if report.board else ()
    telling: dict[str, tuple[str, list[float]]] = {}
    for name, (axis, fact) in _SIZES.items():
        costs = [float(getattr(entry.mechanism, fact)) for entry in entries]
        if len({cost for cost in costs if not math.isnan(cost)}) > 1:
            telling[name] = (axis, costs)
    points = [
        Point(entry.mechanism.label, entry.mechanism.family, entry.skill, costs)
        for entry, *costs in zip(entries, *(costs for _axis, costs in telling.values()), strict=True)
        if not all(map(math.isnan, costs))
    ]
    if not points:
        return None
    axes = [axis for axis, _costs in telling.values()]
    return Drawing(
        name="skill-state",
        title="Skill against state and parameters",
        caption=(
            "Mean skill, with equal weight for all categories and its 95 % interval over seeds. "
            "State: numbers that one layer keeps after a whole sequence, the largest over the tasks. Parameters: in "
            "the mechanisms of all layers. A size that all share has no panel. Colour: family; shape: mechanism."
            + " Numbers: by mean skill, best first."
            * (len(points) > MOST_NAMED)
        ),
        header=("mechanism", "family", *telling, "skill", "low", "high"),
        lines=tuple((point.label, point.family, *point.costs, *point.skill) for point in points),
        draw=lambda: _draw(points, axes, DOUBLE if len(axes) > 1 else SINGLE),
    )


def _draw(points: Sequence[Point], names: Sequence[str], width: float) -> Figure:
    """Draw skill against each cost, in panels side by side.

    ``points`` are sorted by skill, highest first, and ``names`` are the labels of the cost axes, with units.
    """
    points = styled(points)
    height = _HEIGHT if len(points) > MOST_NAMED else 0.75 * _HEIGHT
    key = {"handlelength": 1.0, "handletextpad": 0.4, "columnspacing": 1.0}
    figure, axes = panels([""] * len(names), "skill", _key(points), height=height, width=width, key=key)
    for index, (name, axis) in enumerate(zip(names, axes, strict=True)):
        axis.set_xlabel(name, labelpad=2)
        axis.set_ylim(*_limits(points))
        _draw_points(axis, points, index)
    figure.draw_without_rendering()  # the texts are placed where the layout leaves room
    figure.set_layout_engine("none")
    for index, axis in enumerate(axes):
        _draw_texts(axis, points, index)
    return figure


def _limits(points: Sequence[Point]) -> tuple[float, float]:
    """Return the ends of the axis of skills."""
    low = min(np.fmin(point.skill.low, point.skill.value) for point in points)
    high = max(np.fmax(point.skill.high, point.skill.value) for point in points)
    room = max(0.06 * (high - low), (_NARROWEST - (high - low)) / 2)
    return max(-0.02, float(low) - room), min(_HIGHEST, float(high) + room)


def _draw_points(axis: Axes, points: Sequence[Point], index: int) -> None:
    edge = _scale(axis, [point.costs[index] for point in points])
    for point in points:
        x = point.costs[index] or edge
        if not math.isnan(point.skill.low):
            axis.vlines(x, point.skill.low, point.skill.high, color=point.colour, linewidth=0.5, alpha=0.5, zorder=2)
        axis.plot(
            [x], [point.skill.value], color=point.colour, marker=point.marker, markersize=3.5, linestyle="",
            markeredgecolor="white", markeredgewidth=0.3, zorder=4, clip_on=False,
        )  # fmt: skip


def _scale(axis: Axes, costs: Sequence[float]) -> float:
    """Set scale and ticks of the logarithmic cost axis; return the position of points with a cost of zero."""
    positive = [cost for cost in costs if cost > 0]
    low, high = (min(positive), max(positive)) if positive else (1.0, 10.0)
    has_zero = any(cost == 0 for cost in costs)
    # A cost of zero is at the left edge, with its own tick.
    edge: float = low / max(3.0, (high / low) ** 0.12)
    axis.set_xscale("log")
    # Names stand to the right of the last point.
    axis.set_xlim((edge / 1.5) if has_zero else low / 1.3, high * max(1.3, (high / low) ** 0.15))
    axis.grid(color="#E6E6E6", linewidth=0.4)
    ticks = _ticks(low / 1.3, high * 1.3)
    axis.set_xticks([*([edge] if has_zero else []), *ticks], [*(["0"] if has_zero else []), *map(COMPACT, ticks)])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(PLAIN)
    return edge


def _ticks(low: float, high: float) -> list[float]:
    """Choose powers of ten as ticks.

    If fewer than two fit, their multiples by 2 and 5 are added and, if that is not enough, those by 1 to 9.
    """
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for multiples in ((1,), (1, 2, 5), range(1, 10)):
        ticks = [multiple * power for power in powers for multiple in multiples if low <= multiple * power <= high]
        if len(ticks) > 1:
            break
    return ticks


def _draw_texts(axis: Axes, points: Sequence[Point], index: int) -> None:
    """Draw the text of each point at the nearest place where it covers no point and no other text, if there is one."""
    edge = axis.get_xticks()[0]  # the position of points with a cost of zero
    there = [((point.costs[index] or edge, point.skill.value), point) for point in points if point.costs[index] >= 0]
    pixels = axis.figure.dpi / 72  # in a point
    middles = [axis.transData.transform(at) for at, _point in there]
    taken = [Bbox([middle, middle]).padded(_MARK * pixels) for middle in middles]
    for (at, point), middle in zip(there, middles, strict=True):
        text = axis.annotate(
            point.text, at, (0, 0), textcoords="offset points", size=SMALL, color=point.colour, zorder=5,
            ha="center", va="center", arrowprops={"arrowstyle": "-", "color": PALE, "linewidth": 0.3},
        )  # fmt: skip
        half = np.array(Text.get_window_extent(text).size) / 2 + pixels
        for distance, turn in itertools.product(_DISTANCES * pixels, _TURNS):
            # A text grows away from the point, so that its nearest side is as far off as asked for.
            offset = (distance + half) * (math.cos(turn), math.sin(turn))
            box = Bbox([middle + offset - half, middle + offset + half])
            if not box.count_overlaps(taken) and axis.bbox.count_contains(box.get_points()) == 2:
                text.xyann = tuple(offset / pixels)
                taken.append(box)
                break
        else:
            text.remove()


def _key(points: Sequence[Point]) -> list[tuple[str, Artist]]:
    """List the entries of the legend by family; where points have numbers, each family begins with its name."""
    is_numbered = len(points) > MOST_NAMED
    by_family = attrgetter("family")
    entries: list[tuple[str, Artist]] = []
    for family, of_family in itertools.groupby(sorted(points, key=by_family), key=by_family):
        if is_numbered:
            entries.append((f"{shown(family)}:", Line2D([], [], linestyle="")))
        for point in of_family:
            label = f"{point.text}  {shown(point.label)}" if is_numbered else f"{point.text} ({shown(family)})"
            handle = Line2D([], [], color=point.colour, marker=point.marker, linestyle="", markersize=3.5)
            entries.append((label, handle))
    return entries
