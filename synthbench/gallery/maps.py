"""Figures made of numbers over the plane, as colours."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize, PowerNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from synthbench.gallery.curves import columns
from synthbench.reports.render.figures.drawing import COLOURS, DOUBLE, PLAIN, shown
from synthbench.reports.render.spreadsheet import Value

Square = tuple[float, float, float, float]
"""Left, right, bottom, top."""

CLASSES = ListedColormap([[0.5 + 0.5 * part for part in to_rgb(colour)] for colour in COLOURS[1:]])
"""Pale colours, one for each place in a list."""


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

    panels: Sequence[Map]
    square: Square
    x_label: str = ""
    y_label: str = ""
    is_downward: bool = False
    """Whether rows are counted from above, as those of a matrix."""

    header = ("panel", "x", "y", "value")

    @cached_property
    def lines(self) -> tuple[tuple[Value, ...], ...]:
        """One line a place that has a number, at its middle; then the stars, which have none."""
        lines: list[tuple[Value, ...]] = []
        for panel in self.panels:
            x, y = middles(self.square, panel.values.shape)
            lines += [
                (panel.title, float(x[column]), float(y[row]), float(panel.values[row, column]))
                for row, column in zip(*np.nonzero(~np.isnan(panel.values)), strict=True)
            ]
            stars = [] if panel.marks is None else panel.marks.tolist()
            lines += [(f"{panel.title}, star", right, up, None) for right, up in stars]
        return tuple(lines)

    def draw(self) -> Figure:
        """Draw the maps, row by row, each over its scale of colours; if all scales are equal, one is drawn."""
        num_columns = columns(len(self.panels))
        num_rows = len(self.panels) // num_columns
        side = min(2.1, DOUBLE / num_columns)
        below = 0.5 if any(panel.words for panel in self.panels) else 0.1
        figure = Figure(figsize=(num_columns * side, num_rows * side + below), layout="compressed")
        axes = figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
        is_shared = len({(panel.words, panel.limits, panel.power) for panel in self.panels}) == 1
        for axis, panel in zip(axes.flat, self.panels, strict=True):
            image = self._draw(axis, panel)
            if panel.words and (panel is self.panels[-1] or not is_shared):
                figure.colorbar(
                    image,
                    ax=[*axes.flat] if is_shared else axis,
                    location="bottom",
                    shrink=0.3 if is_shared else 0.8,
                    aspect=25,
                    label=panel.words,
                    ticks=np.linspace(*panel.limits, 3),
                    format=PLAIN,
                )
        return figure

    def _draw(self, axis: Axes, panel: Map) -> AxesImage:
        image = axis.imshow(panel.values, origin="lower", extent=self.square, interpolation="none")
        if panel.words:
            image.set(cmap="cividis", norm=PowerNorm(panel.power, *panel.limits, clip=True))
        else:
            image.set(cmap=CLASSES, norm=Normalize(-0.5, CLASSES.N - 0.5))
        if panel.marks is not None:
            axis.plot(
                *panel.marks.T, linestyle="none", marker="*", markersize=6, color="white",
                markeredgecolor="black", markeredgewidth=0.5,
            )  # fmt: skip
        axis.set_title(shown(panel.title), pad=3, loc="left")
        axis.set(xlim=self.square[:2], ylim=self.square[3:1:-1] if self.is_downward else self.square[2:])
        axis.set(xlabel=self.x_label, ylabel=self.y_label)
        axis.label_outer()
        axis.xaxis.set_major_formatter(PLAIN)
        axis.yaxis.set_major_formatter(PLAIN)
        return image


def middles(square: Square, shape: tuple[int, ...]) -> tuple[Float[np.ndarray, " columns"], Float[np.ndarray, " rows"]]:
    """Middles of the columns and rows of a map."""
    x, y = np.linspace(*square[:2], shape[1] + 1), np.linspace(*square[2:], shape[0] + 1)
    return (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2


def grid(square: Square, num: int) -> Float[np.ndarray, "places 2"]:
    """The middles of ``num`` by ``num`` places, row by row."""
    x, y = np.meshgrid(*middles(square, (num, num)))
    return np.stack([x.ravel(), y.ravel()], axis=1)
