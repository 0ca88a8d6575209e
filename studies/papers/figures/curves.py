"""Figures that show curves over one variable."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes
from matplotlib.scale import LogScale
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from synthbench.reports.render.figures.drawing import DOUBLE, SINGLE, Look, looks, shown, widest
from synthbench.reports.render.spreadsheet import Value

Numbers = Float[np.ndarray, " points"]
Kind = Literal["line", "marked", "points", "steps", "area"]

STYLES: Mapping[Kind, Mapping[str, Any]] = {
    "line": {"marker": ""},
    "marked": {"markersize": 2.5},
    "points": {"markersize": 2, "linestyle": "none", "alpha": 0.6},
    "steps": {"marker": "", "drawstyle": "steps-mid"},
}
"""Arguments of the line of a curve, by kind."""
GRID: Mapping[str, Any] = {"color": "#E6E6E6", "linewidth": 0.4}
POWER = FuncFormatter(
    lambda number, _position: f"{number:g}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")
)
"""Formatter of the ticks of a logarithmic axis."""


@dataclass(frozen=True)
class Curve:
    """A curve over one variable; ``low`` and ``high`` bound an area, or a band around the curve."""

    label: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    kind: Kind = "line"


class Axis(NamedTuple):
    """One side of a panel."""

    label: str
    scale: Literal["linear", "log", "log2", "symlog"] = "linear"
    ends: tuple[float, float] | None = None


class Panel(NamedTuple):
    """Curves with the same two axes."""

    title: str
    curves: Sequence[Curve]
    x: Axis
    y: Axis


@dataclass(frozen=True)
class Curves:
    """Panels of curves over one legend; panels with the same axis share it."""

    panels: Sequence[Panel]
    height: float = 1.5
    """Height of one panel, in inches."""
    is_polar: bool = False
    """True if x is an angle in radians, clockwise from the top."""

    header = ("panel", "curve", "x", "y", "low", "high")

    @cached_property
    def lines(self) -> tuple[tuple[Value, ...], ...]:
        """One line for each point."""
        found: list[tuple[Value, ...]] = []
        for panel in self.panels:
            for curve in panel.curves:
                numbers = (curve.x, curve.y, curve.low, curve.high)
                filled = (repeat(None) if column is None else column.tolist() for column in numbers)
                found += [(panel.title, curve.label, *point) for point in zip(*filled, strict=False)]
        return tuple(found)

    def draw(self) -> Figure:
        """Draw the panels, row by row."""
        look = looks(list(dict.fromkeys(curve.label for panel in self.panels for curve in panel.curves)))
        width = SINGLE if len(self.panels) == 1 else DOUBLE
        legend_columns = max(1, int(width / (0.5 + widest([*map(shown, look)]))))
        below = 0.13 * math.ceil(len(look) / legend_columns) if len(look) > 1 else 0.0
        num_rows = math.ceil(len(self.panels) / columns(len(self.panels)))
        figure = Figure(figsize=(width, num_rows * (self.height + 0.45) + below), layout="constrained")
        for index, panel in enumerate(self.panels):
            axes = self._axes(figure, num_rows, index)
            axes.set_title(shown(panel.title), pad=3, loc="left")
            for curve in panel.curves:
                _draw(axes, curve, look[curve.label])
        if len(look) > 1:
            lines = [pair for axes in figure.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
            entries = {label: handle for handle, label in lines}
            figure.legend(entries.values(), entries, loc="outside lower center", ncols=legend_columns, handlelength=2.8)
        return figure

    def _axes(self, figure: Figure, num_rows: int, index: int) -> Axes:
        """Make the axes of one panel; if all panels have the same axis, only the outer panels are labelled."""
        panel, num_columns = self.panels[index], columns(len(self.panels))
        shares_x, shares_y = (len({getattr(panel, side) for panel in self.panels}) == 1 for side in "xy")
        first, projection = figure.axes[0] if index else None, "polar" if self.is_polar else None
        shared = {"sharex": first if shares_x else None, "sharey": first if shares_y else None}
        axes = figure.add_subplot(num_rows, num_columns, index + 1, projection=projection, **shared)
        if isinstance(axes, PolarAxes):
            _turn(axes, panel)
            return axes
        axes.grid(axis="y", **GRID)
        _frame(axes.xaxis, panel.x, is_labelled=not shares_x or index + num_columns >= len(self.panels))
        _frame(axes.yaxis, panel.y, is_labelled=not shares_y or not index % num_columns)
        return axes


def columns(num_panels: int) -> int:
    """Number of panels in one row of a figure."""
    return 3 if num_panels in {5, 6, 9} else min(4, num_panels)


def spread(label: str, x: Numbers, draws: Float[np.ndarray, "draws points"], *, kind: Kind = "line") -> Curve:
    """Make a curve of the median of several draws at every point, with a band of the middle four fifths."""
    low, middle, high = np.percentile(draws, [10, 50, 90], axis=0)
    return Curve(label, x, middle, low, high, kind)


def histogram(label: str, values: Float[np.ndarray, " values"], edges: Float[np.ndarray, " edges"]) -> Curve:
    """Make a curve of the share of values between neighbouring edges; values outside are clipped to the edges."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return Curve(label, (edges[1:] + edges[:-1]) / 2, counts / len(values), kind="steps")


def _draw(axes: Axes, curve: Curve, look: Look) -> None:
    label, is_area = shown(curve.label), curve.kind == "area"
    if curve.low is not None and curve.high is not None:
        style = {"alpha": 0.55, "label": label} if is_area else {"alpha": 0.15}
        axes.fill_between(curve.x, curve.low, curve.high, color=look.colour, linewidth=0, zorder=2, **style)
    if not is_area:
        style = {"linestyle": look.dashes, "marker": look.marker, "markeredgewidth": 0, **STYLES[curve.kind]}
        axes.plot(curve.x, curve.y, color=look.colour, zorder=3, label=label, **style)


def _frame(side: XAxis | YAxis, axis: Axis, *, is_labelled: bool) -> None:
    scale = LogScale(None, base=2) if axis.scale == "log2" else axis.scale
    settings = {"scale": scale} if axis.ends is None else {"scale": scale, "lim": axis.ends}
    side.axes.set(**{f"{side.axis_name}{name}": value for name, value in settings.items()})
    if axis.scale == "linear":
        side.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    else:
        side.set_major_formatter(POWER)
        side.set_minor_locator(NullLocator())
    if is_labelled:
        side.set_label_text(axis.label)
        side.labelpad = 1 if side.axis_name == "x" else 2
    else:
        side.set_tick_params(labelleft=False, labelbottom=False)


def _turn(axes: PolarAxes, panel: Panel) -> None:
    axes.set(theta_zero_location="N", theta_direction=-1, ylim=panel.y.ends)
    axes.grid(**GRID)
    axes.set_yticks([0.25, 0.5, 0.75, 1], ["", "0.5", "", "1"])
    axes.set_xticks(np.radians([0, 90, 180, 270]), ["0°", "90°", "180°", "270°"])
    axes.tick_params(pad=-2)
