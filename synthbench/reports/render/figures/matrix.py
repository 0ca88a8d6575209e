"""Matrices of coloured fields with a label at each line and column: skills, and probabilities of improvement."""

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.path import Path

from synthbench.reports.render.figures.drawing import (
    DARK,
    DOUBLE,
    SINGLE,
    SMALL,
    Drawing,
    place,
    shown,
    widest,
    width_of,
)
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.table import fixed, skill_words, tie_words
from synthbench.reports.verdicts import SMALLEST_GAP

_FEW = 12
"""Columns up to which every field has its number."""
_HEIGHT, _GAP = 0.13, 0.07
"""Inches: height of a line, and the gap above a group of lines."""
_PAD = 0.06


def heat_map(facts: Facts) -> Drawing | None:
    """The drawing; None if no cell has a skill."""
    mechanisms = facts.best_first
    values = np.array([[facts.cells.cell(task, mechanism).skill for mechanism in mechanisms] for task in facts.tasks])
    if np.isnan(values).all():
        return None
    left_out = ", ".join(task.label for task in facts.cells.tasks if task not in facts.tasks)
    return Drawing(
        name="heat-map",
        title="Skill by task and mechanism",
        caption=(
            f"Mean skill over seeds, {skill_words(has_ladder=facts.cells.has_ladder)}. Mechanisms by mean skill "
            "(all categories weigh the same), best first. White: no score."
            + f" Left out, with less than {100 * SMALLEST_GAP:.0f} points between floor and ceiling: {left_out}."
            * bool(left_out)
        ),
        header=("category", "task", "mechanism", "skill"),
        lines=tuple(
            (task.category, task.label, mechanism.label, float(value))
            for task, line in zip(facts.tasks, values, strict=True)
            for mechanism, value in zip(mechanisms, line, strict=True)
        ),
        draw=lambda: _draw_matrix(
            values,
            [task.label for task in facts.tasks],
            [mechanism.label for mechanism in mechanisms],
            groups=[task.category for task in facts.tasks],
            colours="cividis",
            scale="skill",
        ),
    )


def improvement(facts: Facts) -> Drawing | None:
    """The drawing; None if fewer than two mechanisms are ranked."""
    if facts.board is None or len(facts.board.entries) < 2:
        return None
    labels = [entry.mechanism.label for entry in facts.board.entries]
    values = np.array(
        [[math.nan if chance is None else chance.value for chance in line] for line in facts.board.improvement]
    )
    return Drawing(
        name="improvement",
        title="Probability of improvement",
        caption=(
            "Chance that a run of the row's mechanism has a higher skill than a run of the column's, on a task drawn "
            f"at random, with equal weight for all categories; {tie_words(has_ladder=facts.board.has_ladder)}. Best "
            "mechanism first. The CSV file has a separate 95 % interval of each for tasks like these."
        ),
        header=("mechanism", "other", "probability", "low", "high"),
        lines=tuple(
            (label, other, *chance)
            for label, line in zip(labels, facts.board.improvement, strict=True)
            for other, chance in zip(labels, line, strict=True)
            if chance is not None
        ),
        draw=lambda: _draw_matrix(
            values,
            labels,
            labels,
            colours="PuOr",
            scale="row beats column",
        ),
    )


def _draw_matrix(
    values: Float[np.ndarray, "lines columns"],
    lines: Sequence[str],
    columns: Sequence[str],
    *,
    colours: str,
    scale: str,
    groups: Sequence[str] | None = None,
) -> Figure:
    """Draw fields coloured from 0 to 1; a value outside has the colour of the nearer end, NaN is left white.

    Args:
        values: Of the fields.
        lines: Labels of the rows.
        columns: Labels of the columns.
        colours: Name of the colour map.
        scale: Label of the colour scale.
        groups: Group of each row, named once at its first row.
    """
    has_numbers = len(columns) <= _FEW
    left_labels, top_labels = [*map(shown, lines)], [*map(shown, columns)]
    right_labels = [shown(group.replace("_", " ")) for group in groups or ()]
    left, top = widest(left_labels) + 2 * _PAD, widest(top_labels) + 2 * _PAD
    right = widest(right_labels) + 2 * _PAD if groups else _PAD
    room = (SINGLE if has_numbers else DOUBLE) - left - right
    width = min(0.42, room / len(columns)) if has_numbers else max(0.08, min(_HEIGHT, room / len(columns)))
    starts = [index > 0 and groups is not None and groups[index] != groups[index - 1] for index in range(len(lines))]
    depths = np.cumsum([_HEIGHT + _GAP * is_start for is_start in starts]) - _HEIGHT / 2
    inner_width, inner_height = width * len(columns), float(depths[-1]) + _HEIGHT / 2
    bottom, strip = 0.34, min(1.6, max(0.8, inner_width + right - width_of(scale) - 0.15))
    whole_width = left + max(inner_width + right, strip + width_of(scale) + 0.15)
    figure = Figure(figsize=(whole_width, bottom + inner_height + top))
    axis = place(figure, left, bottom, inner_width, inner_height)
    axis.set_xlim(0, inner_width)
    axis.set_ylim(inner_height, 0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    middles = width * (np.arange(len(columns)) + 0.5)
    x, y = np.meshgrid(middles, depths)
    is_known = ~np.isnan(values)
    map_ = mpl.colormaps[colours]
    shades = map_(np.clip(values[is_known], 0, 1))
    field = Path(
        np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)]) * (width / 2 - 0.004, _HEIGHT / 2 - 0.004), closed=True
    )
    fields = PathCollection(
        [field],
        offsets=np.column_stack([x[is_known], y[is_known]]),
        offset_transform=axis.transData,
        facecolors=shades,
        linewidths=0,
        clip_on=False,
    )
    fields.set_transform(figure.dpi_scale_trans)
    axis.add_collection(fields)
    if has_numbers:
        for line, column in zip(*np.nonzero(is_known), strict=True):
            value = float(values[line, column])
            is_dark = _luminance(map_(min(1.0, max(0.0, value)))) < 0.45
            axis.text(
                middles[column], depths[line], fixed(value, 2), size=SMALL - 0.5, color="white" if is_dark else "black",
                ha="center", va="center_baseline",
            )  # fmt: skip
    axis.set_yticks(depths, left_labels)
    axis.set_xticks(middles, top_labels, rotation=90)
    axis.tick_params(length=0, pad=2, labeltop=True, labelbottom=False)
    for index, (depth, label) in enumerate(zip(depths, right_labels, strict=False)):
        if index == 0 or starts[index]:
            axis.text(inner_width + _PAD, depth, label, size=SMALL, color=DARK, va="center_baseline")
    _scale(figure, map_, scale, left, strip)
    return figure


def _scale(figure: Figure, map_: mpl.colors.Colormap, words: str, left: float, width: float) -> None:
    """A strip of the colours with its ends, below the matrix."""
    strip = place(figure, left, 0.17, width, 0.07)
    strip.pcolormesh(
        np.linspace(0, 1, 33), [0, 1], [np.linspace(0, 1, 32)], cmap=map_, edgecolors="face", linewidth=0.2
    )
    strip.set_yticks([])
    strip.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    strip.tick_params(length=0, pad=1.5)
    for spine in strip.spines.values():
        spine.set_visible(False)
    strip.text(1 + 0.08 / width, 0.5, words, size=SMALL, va="center_baseline", transform=strip.transAxes)


def _luminance(colour: tuple[float, float, float, float]) -> float:
    """Relative luminance of a colour, after WCAG 2."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else math.pow((part + 0.055) / 1.055, 2.4) for part in colour[:3]
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
