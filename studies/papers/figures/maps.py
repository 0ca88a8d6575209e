"""Figures that show numbers over the plane as colours."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize, PowerNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from studies.papers.figures.curves import columns
from synthbench.reports.render.figures.drawing import COLOURS, DOUBLE, PLAIN, shown
from synthbench.reports.render.spreadsheet import Value

Square = tuple[float, float, float, float]
"""Left, right, bottom, top."""
PLANE: Square = (-3.0, 3.0, -3.0, 3.0)
NUM_PLACES = 64
"""Number of places along each side of a square."""

CLASSES = ListedColormap([[0.5 + 0.5 * part for part in to_rgb(colour)] for colour in COLOURS[1:]])
"""Pale colours, one for each place in a list."""
STAR: Mapping[str, Any] = {"marker": "*", "ms": 6, "color": "white", "mec": "black", "mew": 0.5, "linestyle": "none"}


@dataclass(frozen=True)
class Map:
    """Numbers over a square."""

    title: str
    values: Float[np.ndarray, " places"]
    """Numbers row by row, the first row at the bottom; NaN is left white."""
    marks: Float[np.ndarray, "marks 2"] | None = None
    """Places of stars."""
    words: str = ""
    """Meaning of the colours; empty if the numbers are indices, each with its own colour."""
    limits: tuple[float, float] = (0.0, 1.0)
    """Numbers at the ends of the scale of colours; those beyond are drawn like the ends."""
    power: float = 1.0
    """Exponent of the scale of colours; below 1, small numbers are easier to distinguish."""

    @property
    def rows(self) -> Float[np.ndarray, "side side"]:
        """The numbers as a matrix."""
        return self.values.reshape(math.isqrt(self.values.size), -1)


@dataclass(frozen=True)
class Maps:
    """Maps of one square."""

    panels: Sequence[Map]
    square: Square = PLANE
    label: tuple[str, str] = ("", "")
    """Labels of both axes."""
    is_downward: bool = False
    """True if rows are counted from above, as those of a matrix."""

    header = ("panel", "x", "y", "value")

    @cached_property
    def lines(self) -> tuple[tuple[Value, ...], ...]:
        """One line for the middle of each place that has a number, then one line for each star, without a number."""
        lines: list[tuple[Value, ...]] = []
        for panel in self.panels:
            places = grid(self.square, len(panel.rows))
            numbered = zip(places.tolist(), panel.values.tolist(), strict=True)
            lines += [(panel.title, x, y, value) for (x, y), value in numbered if not math.isnan(value)]
            stars = [] if panel.marks is None else panel.marks.tolist()
            lines += [(f"{panel.title}, star", x, y, None) for x, y in stars]
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
                at = {"ax": [*axes.flat], "shrink": 0.3} if is_shared else {"ax": axis, "shrink": 0.8}
                ticks = np.linspace(*panel.limits, 3)
                figure.colorbar(image, location="bottom", aspect=25, label=panel.words, ticks=ticks, format=PLAIN, **at)
        return figure

    def _draw(self, axis: Axes, panel: Map) -> AxesImage:
        scale = PowerNorm(panel.power, *panel.limits, clip=True) if panel.words else Normalize(-0.5, CLASSES.N - 0.5)
        colours = "cividis" if panel.words else CLASSES
        image = axis.imshow(
            panel.rows, origin="lower", extent=self.square, interpolation="none", cmap=colours, norm=scale
        )
        if panel.marks is not None:
            axis.plot(*panel.marks.T, **STAR)
        axis.set_title(shown(panel.title), pad=3, loc="left")
        left, right, bottom, top = self.square
        axis.set(xlim=(left, right), ylim=(top, bottom) if self.is_downward else (bottom, top))
        axis.set(xlabel=self.label[0], ylabel=self.label[1])
        axis.label_outer()
        axis.xaxis.set_major_formatter(PLAIN)
        axis.yaxis.set_major_formatter(PLAIN)
        return image


def grid(square: Square = PLANE, num: int = NUM_PLACES) -> Float[np.ndarray, "places 2"]:
    """Return the middles of ``num`` by ``num`` places, row by row."""
    x, y = (np.linspace(low, high, num + 1) for low, high in (square[:2], square[2:]))
    places = np.meshgrid((x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2)
    return np.stack([axis.ravel() for axis in places], axis=1)
