"""Figures made of curves over one number."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from synthbench.reports.render.figures.drawing import DOUBLE, SINGLE, Look, looks, place, shown
from synthbench.reports.render.figures.lines import draw_legend, height_of
from synthbench.reports.render.spreadsheet import Value

Numbers = Float[np.ndarray, " points"]
Kind = Literal["line", "marked", "points", "steps", "area"]
Scale = Literal["linear", "log", "log2", "symlog"]

_SCALES: dict[Scale, dict[str, Any]] = {
    "linear": {"value": "linear"},
    "log": {"value": "log"},
    "log2": {"value": "log", "base": 2},
    "symlog": {"value": "symlog"},
}


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
    curves: tuple[Curve, ...]
    x_label: str
    y_label: str
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None

    @property
    def horizontal(self) -> tuple[object, ...]:
        """What panels have in common that share their horizontal axis."""
        return self.x_label, self.x_scale, self.x_range

    @property
    def vertical(self) -> tuple[object, ...]:
        """What panels have in common that share their vertical axis."""
        return self.y_label, self.y_scale, self.y_range


@dataclass(frozen=True)
class Curves:
    """Panels of curves over one legend."""

    panels: tuple[Panel, ...]
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
                *(_numbers(values) for values in (curve.x, curve.y)),
                *(itertools.repeat(None) if values is None else _numbers(values) for values in (curve.low, curve.high)),
                strict=False,
            )
        )

    def draw(self) -> Figure:
        """Draw the panels, line by line."""
        width = SINGLE if len(self.panels) == 1 else DOUBLE
        look = looks(list(dict.fromkeys(curve.label for panel in self.panels for curve in panel.curves)))
        below = height_of(look, width, has_pale=False) if len(look) > 1 else 0.05
        has_markers = any(curve.kind in {"marked", "points"} for panel in self.panels for curve in panel.curves)
        figure, axes = self._axes(width, below)
        for axis, panel in zip(axes, self.panels, strict=True):
            for curve in panel.curves:
                _draw(axis, curve, look[curve.label])
            if self.is_polar:
                _turn(axis, panel)
            else:
                _frame(axis, panel)
        if len(look) > 1:
            draw_legend(figure, look, has_pale=False, has_markers=has_markers)
        return figure

    def _axes(self, width: float, below: float) -> tuple[Figure, list[Axes]]:
        is_shared = len({panel.vertical for panel in self.panels}) == 1
        num_columns = columns(len(self.panels))
        num_lines = -(-len(self.panels) // num_columns)
        left, right, top, bottom = 0.5, 0.1, 0.22, 0.32
        gap_x, gap_y = 0.14 if is_shared else 0.5, 0.27 if self._shares_x else 0.56
        if self.is_polar:
            top, gap_x = 0.42, 0.3
        panel_width = (width - left - right - gap_x * (num_columns - 1)) / num_columns
        height = panel_width if self.is_polar else self.height
        figure = Figure(figsize=(width, below + bottom + top + num_lines * height + (num_lines - 1) * gap_y))
        axes = []
        for index, panel in enumerate(self.panels):
            line, column = divmod(index, num_columns)
            at = (left + column * (panel_width + gap_x), below + bottom + (num_lines - 1 - line) * (height + gap_y))
            if self.is_polar:
                inches = figure.get_size_inches()
                box = (at[0] / inches[0], at[1] / inches[1], panel_width / inches[0], height / inches[1])
                axis: Axes = figure.add_axes(box, projection="polar")
            else:
                axis = place(figure, *at, panel_width, height)
                if is_shared and column:
                    axis.tick_params(labelleft=False)
                else:
                    axis.set_ylabel(panel.y_label, labelpad=2)
                if self._shares_x and index + num_columns < len(self.panels):
                    axis.tick_params(labelbottom=False)
                else:
                    axis.set_xlabel(panel.x_label, labelpad=1)
            axis.set_title(shown(panel.title), pad=14 if self.is_polar else 3, loc="left")
            axes.append(axis)
        return figure, axes

    @property
    def _shares_x(self) -> bool:
        return len({panel.horizontal for panel in self.panels}) == 1


def columns(num_panels: int) -> int:
    """Panels on one line of a figure."""
    return 3 if num_panels in {5, 6, 9} else min(4, num_panels)


def spread(label: str, x: Numbers, draws: Float[np.ndarray, "draws points"], *, kind: Kind = "line") -> Curve:
    """The median of several draws at every point, and between its tenth and ninetieth percentile a band."""
    low, middle, high = np.percentile(draws, [10, 50, 90], axis=0)
    return Curve(label, x, middle, low, high, kind)


def histogram(label: str, values: Float[np.ndarray, " values"], edges: Float[np.ndarray, " edges"]) -> Curve:
    """The share of some values between neighbouring edges; what lies outside counts to the outermost."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
    return Curve(label, (edges[1:] + edges[:-1]) / 2, counts / len(values), kind="steps")


def _numbers(values: Numbers) -> Sequence[float]:
    numbers: list[float] = values.tolist()
    return numbers


def _draw(axis: Axes, curve: Curve, look: Look) -> None:
    if curve.low is not None and curve.high is not None:
        shade = 0.55 if curve.kind == "area" else 0.15
        axis.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=shade, linewidth=0, zorder=2)
    if curve.kind == "area":
        return
    has_line, has_marker = curve.kind != "points", curve.kind in {"marked", "points"}
    axis.plot(
        curve.x,
        curve.y,
        color=look.colour,
        linestyle=look.dashes if has_line else "none",
        marker=look.marker if has_marker else "",
        markersize=2.5 if has_line else 2,
        markeredgewidth=0,
        drawstyle="steps-mid" if curve.kind == "steps" else "default",
        alpha=1 if has_line else 0.6,
        zorder=3,
    )


def _frame(axis: Axes, panel: Panel) -> None:
    axis.grid(axis="y", color="#E6E6E6", linewidth=0.4)
    axis.set_xscale(**_SCALES[panel.x_scale])
    axis.set_yscale(**_SCALES[panel.y_scale])
    if panel.x_range is not None:
        axis.set_xlim(panel.x_range)
    if panel.y_range is not None:
        axis.set_ylim(panel.y_range)
    for at, scale in ((axis.xaxis, panel.x_scale), (axis.yaxis, panel.y_scale)):
        if scale == "linear":
            at.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        else:
            at.set_major_formatter(POWER)
            at.set_minor_locator(NullLocator())


def _turn(axis: Axes, panel: Panel) -> None:
    axis.set_theta_zero_location("N")  # type: ignore[attr-defined]
    axis.set_theta_direction(-1)  # type: ignore[attr-defined]
    axis.grid(color="#E6E6E6", linewidth=0.4)
    axis.set_ylim(panel.y_range)
    axis.set_yticks([0.25, 0.5, 0.75, 1], ["", "0.5", "", "1"])
    axis.set_xticks(np.radians([0, 90, 180, 270]), ["0°", "", "180°", ""])  # those at the sides touch the neighbours
    axis.tick_params(pad=-2)
