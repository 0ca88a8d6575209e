"""Figures made of numbers over the plane, as colours."""

from dataclasses import dataclass
from functools import cached_property

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from synthbench.gallery.curves import columns
from synthbench.reports.render.figures.drawing import COLOURS, DOUBLE, PLAIN, SMALL, place, shown
from synthbench.reports.render.spreadsheet import Value

Square = tuple[float, float, float, float]
"""Left, right, bottom, top."""

SHADES = tuple(tuple(0.5 + 0.5 * part for part in to_rgb(colour)) for colour in COLOURS[1:])
"""Of what is one of several."""


@dataclass(frozen=True)
class Map:
    """Numbers over a square, the first row at the bottom; NaN is left white."""

    title: str
    values: Float[np.ndarray, "rows columns"]
    marks: Float[np.ndarray, "marks 2"] | None = None
    """Places of stars."""
    words: str = "value"
    """What the colours say; nothing if the numbers are places in a list: each has a colour of its own."""
    limits: tuple[float, float] = (0.0, 1.0)
    """Numbers at the ends of the scale of colours; those beyond are drawn like the ends."""
    power: float = 1.0
    """Of the colours' growth: below 1, small numbers are told apart better."""


@dataclass(frozen=True)
class Maps:
    """Maps of one square."""

    panels: tuple[Map, ...]
    square: Square
    x_label: str = ""
    y_label: str = ""
    is_downward: bool = False
    """Whether rows are counted from above, as those of a matrix."""

    header = ("panel", "x", "y", "value")

    @cached_property
    def lines(self) -> tuple[tuple[Value, ...], ...]:
        """One line a place that has a number, at its middle; then the stars, which have none."""
        found: list[tuple[Value, ...]] = []
        for panel in self.panels:
            x, y = middles(self.square, panel.values.shape)
            found += [
                (panel.title, float(x[column]), float(y[row]), float(panel.values[row, column]))
                for row, column in zip(*np.nonzero(~np.isnan(panel.values)), strict=True)
            ]
            found += [(f"{panel.title}, star", float(at), float(up), None) for at, up in _stars(panel)]
        return tuple(found)

    def draw(self) -> Figure:
        """Draw the maps, line by line, each over its scale."""
        num_columns = columns(len(self.panels))
        left, right, top, gap_x = 0.4, 0.1, 0.2, 0.16
        bottom = 0.34 if self.x_label else 0.24
        side = min(1.9, (DOUBLE - left - right - gap_x * (num_columns - 1)) / num_columns)
        starts = range(0, len(self.panels), num_columns)
        scaled = self._scaled(starts[-1])
        heights = [
            top + side + bottom + (0.28 if scaled & set(range(start, start + num_columns)) else 0) for start in starts
        ]
        width = left + right + num_columns * side + (num_columns - 1) * gap_x
        figure = Figure(figsize=(width, sum(heights)))
        for index, panel in enumerate(self.panels):
            line, column = divmod(index, num_columns)
            x = left + column * (side + gap_x)
            y = sum(heights[line + 1 :]) + heights[line] - top - side
            axis = place(figure, x, y, side, side)
            axis.set_title(shown(panel.title), pad=3, loc="left")
            axis.imshow(_image(panel), origin="lower", extent=self.square, aspect="auto", interpolation="none")
            stars = _stars(panel)
            axis.plot(
                stars[:, 0], stars[:, 1], linestyle="none", marker="*", markersize=6, color="white",
                markeredgecolor="black", markeredgewidth=0.5,
            )  # fmt: skip
            axis.set_xlim(self.square[:2])
            axis.set_ylim(self.square[3:1:-1] if self.is_downward else self.square[2:])
            axis.set_xlabel(self.x_label, labelpad=1)
            if column:
                axis.tick_params(labelleft=False)
            else:
                axis.set_ylabel(self.y_label, labelpad=2)
            for at in (axis.xaxis, axis.yaxis):
                at.set_major_formatter(PLAIN)
            if index in scaled:
                _scale(figure, panel, x, y - bottom - 0.12, side)
        return figure

    def _scaled(self, last: int) -> set[int]:
        """The panels below which stands a scale: all that have one, or the first of the last line for all."""
        scales = {(panel.words, panel.limits, panel.power) for panel in self.panels}
        return (
            {last}
            if len(scales) == 1 and self.panels[0].words
            else {i for i, panel in enumerate(self.panels) if panel.words}
        )


def middles(square: Square, shape: tuple[int, ...]) -> tuple[Float[np.ndarray, " columns"], Float[np.ndarray, " rows"]]:
    """Middles of the columns and rows of a map."""
    edges = (np.linspace(*square[:2], shape[1] + 1), np.linspace(*square[2:], shape[0] + 1))
    x, y = ((of[1:] + of[:-1]) / 2 for of in edges)
    return x, y


def grid(square: Square, num: int) -> Float[np.ndarray, "places 2"]:
    """The middles of ``num`` by ``num`` places, row by row."""
    x, y = np.meshgrid(*middles(square, (num, num)))
    return np.stack([x.ravel(), y.ravel()], axis=1)


def _stars(panel: Map) -> Float[np.ndarray, "marks 2"]:
    return np.empty((0, 2)) if panel.marks is None else panel.marks


def _image(panel: Map) -> UInt8[np.ndarray, "rows columns 4"]:
    is_known = ~np.isnan(panel.values)
    colours = np.ones((*panel.values.shape, 4))
    if panel.words:
        low, high = panel.limits
        shares = np.clip((panel.values - low) / (high - low), 0, 1) ** panel.power
        colours[is_known] = mpl.colormaps["cividis"](shares[is_known])
    else:
        colours[is_known, :3] = np.array(SHADES)[panel.values[is_known].astype(int)]
    return (255 * colours).round().astype(np.uint8)


def _scale(figure: Figure, panel: Map, left: float, bottom: float, width: float) -> None:
    """A strip of the colours with its ends, below a map."""
    strip = place(figure, left, bottom, width * 0.45, 0.06)
    low, high = panel.limits
    numbers = low + np.linspace(0, 1, 64) * (high - low)
    ramp = Map("", numbers[None], words=panel.words, limits=panel.limits, power=panel.power)
    strip.imshow(_image(ramp), extent=(low, high, 0, 1), aspect="auto", interpolation="none")
    strip.set_yticks([])
    strip.set_xticks([low, high], [f"{number:g}".replace("-", "−") for number in panel.limits])
    strip.tick_params(length=0, pad=1.5)
    for spine in strip.spines.values():
        spine.set_visible(False)
    strip.text(1.12, 0.5, panel.words, size=SMALL, va="center_baseline", transform=strip.transAxes)
