"""Coordinates of the charts that templates draw, in units of a chart's SVG view box."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

BAR_WIDTH, BAR_MARGIN = 96, 6
"""Width of a bar, and the margin between its ends and the skills 0 and 1; values beyond a bar are drawn at its end."""
HEAT_LEVELS = 10

PLOT_WIDTH, PLOT_HEIGHT = 120, 60
MOST_POINTS = 40
"""Limit on the points drawn for a curve; if there are more, evenly spaced points are chosen, including the last."""


class Bar(NamedTuple):
    """Horizontal coordinates, in a bar chart, of a skill and of the ends of its interval."""

    x: str
    left: str
    """Left end of the interval; empty without one."""
    right: str


class Curve(NamedTuple):
    """Coordinates of a learning curve: a mean over training steps, with a band around it."""

    line: str
    """Path of the mean."""
    band: str
    """Path around the band; empty without one."""
    floor: str
    """Vertical coordinate of the floor's line; empty without a floor, as for a loss."""
    ceiling: str
    metric: str
    last: float
    """Mean at the last step."""
    last_step: int


def bar(skill: float, low: float, high: float) -> Bar | None:
    """Return the coordinates of a skill with its interval; None if the skill is NaN."""
    return None if math.isnan(skill) else Bar(_x(skill), _x(low), _x(high))


def heat(skill: float) -> str:
    """Return the step on a colour scale, as text: from 0 (skill at most 0) to ``HEAT_LEVELS`` (skill at least 1).

    The text is empty if the skill is NaN.
    """
    return "" if math.isnan(skill) else str(round(HEAT_LEVELS * _inside(skill)))


def over_loads(loads: Sequence[float], skills: Sequence[float]) -> str:
    """Return the SVG path of skill over the logarithm of the load; the smallest load is at the left end."""
    points = zip(loads, skills, strict=True)
    return "M" + "L".join(f"{PLOT_WIDTH * along(loads, load):.0f} {_y(skill)}" for load, skill in points)


def along(loads: Sequence[float], load: float) -> float:
    """Return the position of a load on a logarithmic scale: 0 at the first of ``loads``, 1 at the last."""
    return math.log2(load / loads[0]) / (math.log2(loads[-1] / loads[0]) or 1.0)


def curve(points: pd.DataFrame, *, metric: str, bounds: tuple[float, float] | None) -> Curve | None:
    """Return the coordinates for drawing a learning curve: the mean over seeds, and a band of ± one standard deviation.

    ``points`` has the columns step, mean and std. ``bounds`` holds the floor and the ceiling if the metric is an
    accuracy; the vertical axis then goes from 0 to 1. Otherwise, the axis goes from 0 to the largest sum of mean and
    standard deviation. The result is None if no mean is finite.
    """
    points = points[np.isfinite(points["mean"])].fillna({"std": 0.0})
    if points.empty:
        return None
    top = 1.0 if bounds else float((points["mean"] + points["std"]).max()) or 1.0
    last, last_step = float(points["mean"].iloc[-1]), int(points["step"].iloc[-1])
    if len(points) > MOST_POINTS:
        points = points.iloc[np.rint(np.arange(MOST_POINTS) * (len(points) - 1) / (MOST_POINTS - 1)).astype(int)]
    mean, deviation = points["mean"].to_numpy(), points["std"].to_numpy()

    def path(shares: Float[np.ndarray, " points"]) -> list[str]:
        xs = PLOT_WIDTH * points["step"] / max(1, last_step)
        return [f"{x:.0f} {_y(share / top)}" for x, share in zip(xs, shares, strict=True)]

    return Curve(
        line="M" + "L".join(path(mean)),
        band=f"M{'L'.join([*path(mean + deviation), *path(mean - deviation)[::-1]])}Z" if deviation.any() else "",
        floor=_y(bounds[0]) if bounds else "",
        ceiling=_y(bounds[1]) if bounds else "",
        metric=metric,
        last=last,
        last_step=last_step,
    )


def _x(skill: float) -> str:
    coordinate = min(max(BAR_MARGIN + skill * (BAR_WIDTH - 2 * BAR_MARGIN), 0.0), float(BAR_WIDTH))
    return "" if math.isnan(skill) else f"{coordinate:.1f}".removesuffix(".0")


def _y(share: float) -> str:
    return "" if math.isnan(share) else f"{PLOT_HEIGHT * (1 - _inside(share)):.0f}"


def _inside(share: float) -> float:
    return min(max(share, 0.0), 1.0)
