"""Lines of mechanisms and their legend: shared by the figures that are made of them."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Num
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from synthbench.reports.render.figures.drawing import PALE, PITCH, SINGLE, SMALL, Look, place, shown, widest

_HANDLE = 0.4
"""Inches from the beginning of one entry's line to that of its label, and to the next entry."""


def draw_lines(
    axis: Axes,
    lines: Mapping[str, tuple[Num[np.ndarray, " points"], Float[np.ndarray, " points"]]],
    bands: Mapping[str, tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]],
    looks: Mapping[str, Look],
) -> None:
    """Draw the lines of one panel, the pale ones (without a look) at the back; values outside are drawn at the edge.

    ``lines`` has the points of each line by label, ``bands`` the ends of the band at each point, NaN for none.
    """
    low, high = axis.get_ylim()
    pale = [points for label, points in lines.items() if label not in looks]
    if pale:
        # One path with gaps: in a file each line of its own would take more for its style than for its points.
        at, heights = (np.concatenate([[*points[part], np.nan] for points in pale]) for part in (0, 1))
        heights = np.clip(heights, low, high)
        axis.plot(at, heights, color=PALE, linewidth=0.4, zorder=2)
    for label, look in looks.items():
        if label in lines:
            at, heights = lines[label]
            if not np.isnan(bands[label]).all():
                ends = (np.clip(end, low, high) for end in bands[label])
                axis.fill_between(at, *ends, color=look.colour, alpha=0.15, linewidth=0, zorder=2)
            axis.plot(at, np.clip(heights, low, high), color=look.colour, linestyle=look.dashes, zorder=3)


def height_of(looks: Mapping[str, Look], width: float, *, has_pale: bool) -> float:
    """Room in inches that the legend needs below the panels of a figure of some width."""
    return 0.08 + 1.35 * PITCH * -(-(len(looks) + has_pale) // _num_columns(looks, width))


def panel_of_shares(
    looks: Mapping[str, Look], x_label: str, y_label: str, *, height: float, has_pale: bool
) -> tuple[Figure, Axes]:
    """A figure of one panel for numbers from 0 to 1, with its legend below; ``height`` of the axes in inches."""
    below = height_of(looks, SINGLE, has_pale=has_pale) + 0.3
    figure = Figure(figsize=(SINGLE, below + height + 0.1))
    axis = place(figure, 0.42, below, SINGLE - 0.42 - 0.1, height)
    axis.grid(color="#E6E6E6", linewidth=0.4)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel(x_label, labelpad=1)
    axis.set_ylabel(y_label, labelpad=2)
    draw_legend(figure, looks, has_pale=has_pale)
    return figure, axis


def draw_legend(figure: Figure, looks: Mapping[str, Look], *, has_pale: bool) -> None:
    """Draw the legend at the foot of a figure; pale lines share one entry."""
    handles = [Line2D([], [], color=look.colour, linestyle=look.dashes) for look in looks.values()]
    if has_pale:
        handles.append(Line2D([], [], color=PALE))
    figure.legend(
        handles=handles,
        labels=[*map(shown, looks), *(["others"] if has_pale else [])],
        loc="lower center",
        ncols=_num_columns(looks, float(figure.get_size_inches()[0])),
        handlelength=2.8,
        columnspacing=1.2,
        labelspacing=0.35,
        borderaxespad=0.2,
    )


def _num_columns(looks: Mapping[str, Look], width: float) -> int:
    return max(1, int(width / (_HANDLE + widest([*map(shown, looks)], SMALL) + 0.05)))
