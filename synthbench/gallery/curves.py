"""Figures made of curves over one number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from synthbench.reports.render.figures.drawing import DOUBLE, SINGLE, Look, looks, shown, widest
from synthbench.reports.render.spreadsheet import Value

Numbers = Float[np.ndarray, " points"]
Kind = Literal["line", "marked", "points", "steps", "area"]
Scale = Literal["linear", "log", "log2", "symlog"]

POWER = FuncFormatter(
    lambda number, _position: f"{number:g}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")
)
"""A tick of a logarithmic axis. Powers of ten cannot be set in small print: the style has no mathematical text."""


@dataclass(frozen=True)
class Curve:
    """Points over one number; an area lies between ``low`` and ``high``, a band around any other curve too."""

    label: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    kind: Kind = "line"


@dataclass(frozen=True)
class Panel:
    """Curves with the same two axes."""

    title: str
    curves: Sequence[Curve]
    x_label: str
    y_label: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Curves:
    """Panels of curves over one legend; panels with the same axis share it."""

    panels: Sequence[Panel]
    height: float = 1.5
    """Of one panel, in inches."""
    is_polar: bool = False
    """Whether x is an angle in radians, clockwise from the top."""

    header = ("panel", "curve", "x", "y", "low", "high")

    @cached_property
    def lines(self) -> tuple[tuple[Value, ...], ...]:
        """One line a point."""
        return tuple(
            (panel.title, curve.label, *point)
            for panel in self.panels
            for curve in panel.curves
            for point in zip(
                curve.x.tolist(),
                curve.y.tolist(),
                repeat(None) if curve.low is None else curve.low.tolist(),
                repeat(None) if curve.high is None else curve.high.tolist(),
                strict=False,
            )
        )

    def draw(self) -> Figure:
        """Draw the panels, row by row."""
        look = looks(list(dict.fromkeys(curve.label for panel in self.panels for curve in panel.curves)))
        width = SINGLE if len(self.panels) == 1 else DOUBLE
        legend_columns = max(1, int(width / (0.5 + widest([*map(shown, look)]))))
        below = 0.13 * math.ceil(len(look) / legend_columns) if len(look) > 1 else 0.0
        num_rows = math.ceil(len(self.panels) / columns(len(self.panels)))
        figure = Figure(figsize=(width, num_rows * (self.height + 0.45) + below), layout="constrained")
        entries: dict[str, Any] = {}
        for index, panel in enumerate(self.panels):
            axis = self._axis(figure, num_rows, index)
            axis.set_title(shown(panel.title), pad=3, loc="left")
            for curve in panel.curves:
                _draw(axis, curve, look[curve.label])
            handles, labels = axis.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
        if len(look) > 1:
            figure.legend(entries.values(), entries, loc="outside lower center", ncols=legend_columns, handlelength=2.8)
        return figure

    def _axis(self, figure: Figure, num_rows: int, index: int) -> Axes:
        """The axes of one panel, without labels where the panel beside or below has the same."""
        panel, num_columns = self.panels[index], columns(len(self.panels))
        shares_x = len({(panel.x_label, panel.x_scale, panel.x_range) for panel in self.panels}) == 1
        shares_y = len({(panel.y_label, panel.y_scale, panel.y_range) for panel in self.panels}) == 1
        first = figure.axes[0] if index else None
        axis = figure.add_subplot(
            num_rows,
            num_columns,
            index + 1,
            projection="polar" if self.is_polar else None,
            sharex=first if shares_x else None,
            sharey=first if shares_y else None,
        )
        if self.is_polar:
            _turn(axis, panel)
            return axis
        _frame(axis, panel)
        if shares_y and index % num_columns:
            axis.tick_params(labelleft=False)
        else:
            axis.set_ylabel(panel.y_label, labelpad=2)
        if shares_x and index + num_columns < len(self.panels):
            axis.tick_params(labelbottom=False)
        else:
            axis.set_xlabel(panel.x_label, labelpad=1)
        return axis


def columns(num_panels: int) -> int:
    """Panels in one row of a figure."""
    return 3 if num_panels in {5, 6, 9} else min(4, num_panels)


def spread(label: str, x: Numbers, draws: Float[np.ndarray, "draws points"], *, kind: Kind = "line") -> Curve:
    """The median of several draws at every point, and between its tenth and ninetieth percentile a band."""
    low, middle, high = np.percentile(draws, [10, 50, 90], axis=0)
    return Curve(label, x, middle, low, high, kind)


def histogram(label: str, values: Float[np.ndarray, " values"], edges: Float[np.ndarray, " edges"]) -> Curve:
    """The share of some values between neighbouring edges; what lies outside counts to the outermost."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return Curve(label, (edges[1:] + edges[:-1]) / 2, counts / len(values), kind="steps")


def _draw(axis: Axes, curve: Curve, look: Look) -> None:
    is_area, has_line = curve.kind == "area", curve.kind != "points"
    label = shown(curve.label)
    if curve.low is not None and curve.high is not None:
        axis.fill_between(
            curve.x,
            curve.low,
            curve.high,
            color=look.colour,
            alpha=0.55 if is_area else 0.15,
            linewidth=0,
            zorder=2,
            label=label if is_area else None,
        )
    if not is_area:
        axis.plot(
            curve.x,
            curve.y,
            color=look.colour,
            linestyle=look.dashes if has_line else "none",
            marker=look.marker if curve.kind in {"marked", "points"} else "",
            markersize=2.5 if has_line else 2,
            markeredgewidth=0,
            drawstyle="steps-mid" if curve.kind == "steps" else "default",
            alpha=1 if has_line else 0.6,
            zorder=3,
            label=label,
        )


def _frame(axis: Axes, panel: Panel) -> None:
    axis.grid(axis="y", color="#E6E6E6", linewidth=0.4)
    axis.set_xscale(**_arguments(panel.x_scale))
    axis.set_yscale(**_arguments(panel.y_scale))
    if panel.x_range is not None:
        axis.set_xlim(panel.x_range)
    if panel.y_range is not None:
        axis.set_ylim(panel.y_range)
    for side, scale in ((axis.xaxis, panel.x_scale), (axis.yaxis, panel.y_scale)):
        if scale == "linear":
            side.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        else:
            side.set_major_formatter(POWER)
            side.set_minor_locator(NullLocator())


def _arguments(scale: Scale) -> dict[str, Any]:
    return {"value": "log", "base": 2} if scale == "log2" else {"value": scale}


def _turn(axis: Axes, panel: Panel) -> None:
    axis.set_theta_zero_location("N")  # type: ignore[attr-defined]
    axis.set_theta_direction(-1)  # type: ignore[attr-defined]
    axis.grid(color="#E6E6E6", linewidth=0.4)
    axis.set_ylim(panel.y_range)
    axis.set_yticks([0.25, 0.5, 0.75, 1], ["", "0.5", "", "1"])
    axis.set_xticks(np.radians([0, 90, 180, 270]), ["0°", "90°", "180°", "270°"])
    axis.tick_params(pad=-2)
