"""Skill against costs: one panel per cost, a number or a name at each point, and a legend of all mechanisms.

The colour of a point shows the mechanism's family, and the marker shows the mechanism within the family. The text of a
point is placed where it covers nothing, with a line to the point if the point is far away. Points without room for text
are identified by colour and marker.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

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
    width_of,
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
_MARK = 0.035
"""Half the width of a marker, in inches."""
_FURTHEST, _TIED = 0.9, 0.1
"""Largest distance of a text from its point, and the distance beyond which a line connects them, in inches."""
_NUM_DIRECTIONS = 16
_PITCH = 0.095
"""Inches from one small line of text to the next."""


_SIZES = {"state": ("state of a layer, numbers", "state"), "parameters": ("parameters", "num_parameters")}
"""Sizes to draw: the label of each axis and the field of the mechanism's facts."""


class Point(NamedTuple):
    """One mechanism in the plot: its skill and its costs."""

    label: str
    family: str
    skill: Interval
    costs: Sequence[float]
    """Costs, one per panel; a panel leaves out a point whose cost is NaN."""


class Look(NamedTuple):
    """The style and text of a mechanism's point."""

    colour: str
    marker: str
    text: str
    """The text at the point: the mechanism's number in the key, or its name."""


Box = Float[np.ndarray, " 4"]
"""Left, bottom, right and top of a rectangle, in inches from the lower left corner of a panel."""


def looks(points: Sequence[Point]) -> list[Look]:
    """Choose the colour, marker and text of each point: the colour shows the family, the marker the mechanism in it.

    The text is the label of the mechanism. If there are more than ``MOST_NAMED`` points, it is the number of the point,
    counted from 1.
    """
    families = sorted({point.family for point in points})
    colours = dict(zip(families, itertools.cycle(FAMILY_COLOURS), strict=False))
    markers = {family: itertools.cycle(MARKERS) for family in families}
    return [
        Look(
            colours[point.family],
            next(markers[point.family]),
            shown(point.label) if len(points) <= MOST_NAMED else str(number),
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
    of_points = looks(points)
    height = _HEIGHT if len(points) > MOST_NAMED else 0.75 * _HEIGHT
    key = {"handlelength": 1.0, "handletextpad": 0.4, "columnspacing": 1.0}
    figure, axes = panels([""] * len(names), "skill", _key(points, of_points), height=height, width=width, key=key)
    for index, (name, axis) in enumerate(zip(names, axes, strict=True)):
        axis.set_xlabel(name, labelpad=2)
        axis.set_ylim(*_limits(points))
        _draw_points(axis, points, index, of_points)
    figure.draw_without_rendering()  # the texts are placed where the layout leaves room
    figure.set_layout_engine("none")
    for index, axis in enumerate(axes):
        _draw_texts(axis, points, index, of_points)
    return figure


def places(
    anchors: Float[np.ndarray, "points xy"], widths: Sequence[float], size: tuple[float, float]
) -> list[Box | None]:
    """Find a box for each point's text, near the point, that covers no point and no other text.

    The box is None for a point without free room. Earlier points choose first. All sizes are in inches.
    """
    taken = np.array([(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in anchors])
    boxes: list[Box | None] = []
    for (x, y), width in zip(anchors, widths, strict=True):
        tried = _boxes(x, y, width)
        box, other = tried[:, None], taken[None]
        overlaps = ((box[..., :2] < other[..., 2:]) & (other[..., :2] < box[..., 2:])).all(axis=-1)
        is_inside = (tried[:, :2] >= 0).all(axis=1) & (tried[:, 2:] <= size).all(axis=1)
        is_free = is_inside & ~np.asarray(overlaps).any(axis=1)
        boxes.append(tried[is_free.argmax()] if is_free.any() else None)
        if boxes[-1] is not None:
            taken = np.vstack([taken, boxes[-1]])
    return boxes


def _boxes(x: float, y: float, width: float) -> Float[np.ndarray, "boxes 4"]:
    """Return possible boxes for a text around a point: nearest first and, at equal distance, rightmost first."""
    distances = np.arange(_MARK + 0.025, _FURTHEST, 0.05)
    turns = np.arange(_NUM_DIRECTIONS) / _NUM_DIRECTIONS
    turns = turns[np.argsort(np.minimum(turns, 1 - turns), kind="stable")]
    distance = np.repeat(distances, len(turns))
    aside, up = (np.tile(part(2 * np.pi * turns), len(distances)) for part in (np.cos, np.sin))
    # A text grows away from the point, so that its nearest side is as far off as asked for.
    middle_x = x + distance * aside + width / 2 * aside
    middle_y = y + distance * up + _PITCH / 2 * up
    return np.column_stack([middle_x - width / 2, middle_y - _PITCH / 2, middle_x + width / 2, middle_y + _PITCH / 2])


def _limits(points: Sequence[Point]) -> tuple[float, float]:
    """Return the ends of the axis of skills."""
    low = min(np.fmin(point.skill.low, point.skill.value) for point in points)
    high = max(np.fmax(point.skill.high, point.skill.value) for point in points)
    room = max(0.06 * (high - low), (_NARROWEST - (high - low)) / 2)
    return max(-0.02, float(low) - room), min(_HIGHEST, float(high) + room)


def _draw_points(axis: Axes, points: Sequence[Point], index: int, of_points: Sequence[Look]) -> None:
    edge = _scale(axis, [point.costs[index] for point in points])
    for point, look in zip(points, of_points, strict=True):
        x = point.costs[index] or edge
        if not math.isnan(point.skill.low):
            axis.vlines(x, point.skill.low, point.skill.high, color=look.colour, linewidth=0.5, alpha=0.5, zorder=2)
        axis.plot(
            [x], [point.skill.value], color=look.colour, marker=look.marker, markersize=3.5, linestyle="",
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


def _draw_texts(axis: Axes, points: Sequence[Point], index: int, of_points: Sequence[Look]) -> None:
    """Draw the texts of the points for which there is room."""
    edge = axis.get_xticks()[0]  # the position of points with a cost of zero
    there = [(point, look) for point, look in zip(points, of_points, strict=True) if point.costs[index] >= 0]
    if not there:
        return
    at = [(point.costs[index] or edge, point.skill.value) for point, _look in there]
    box = axis.get_window_extent()
    inches = (axis.transData.transform(at) - box.min) / axis.figure.dpi
    size = (box.width / axis.figure.dpi, box.height / axis.figure.dpi)
    widths = [width_of(look.text) + 0.02 for _point, look in there]
    for anchor, (_point, look), place in zip(inches, there, places(inches, widths, size), strict=True):
        if place is None:
            continue
        x, y = (place[:2] + place[2:]) / 2 / size
        near = np.clip(anchor, place[:2], place[2:])
        if math.dist(anchor, near) > _TIED:
            axis.plot(
                *(np.array([anchor, near]) / size).T, color=PALE, linewidth=0.3, zorder=3, transform=axis.transAxes
            )
        axis.text(
            x, y, look.text, size=SMALL, color=look.colour, ha="center", va="center_baseline",
            transform=axis.transAxes, zorder=5,
        )  # fmt: skip


def _key(points: Sequence[Point], of_points: Sequence[Look]) -> list[tuple[str, Artist]]:
    """List the entries of the legend by family; where points have numbers, each family begins with its name."""
    is_numbered = len(points) > MOST_NAMED
    order = sorted(range(len(points)), key=lambda index: (points[index].family, index))
    entries: list[tuple[str, Artist]] = []
    for family, runs in itertools.groupby(order, key=lambda index: points[index].family):
        if is_numbered:
            entries.append((f"{shown(family)}:", Line2D([], [], linestyle="")))
        for index in runs:
            look, label = of_points[index], shown(points[index].label)
            handle = Line2D([], [], color=look.colour, marker=look.marker, linestyle="", markersize=3.5)
            entries.append((f"{look.text}  {label}" if is_numbered else f"{label} ({shown(family)})", handle))
    return entries
