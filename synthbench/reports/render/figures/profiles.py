"""Performance profiles: how many runs of a mechanism reach a skill."""

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from synthbench.reports.aggregates import over_seeds, profile
from synthbench.reports.leaderboard import Leaderboard
from synthbench.reports.render.figures.drawing import PERCENT, PLAIN, SINGLE, Drawing, place
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import draw_legend, draw_lines, height_of
from synthbench.reports.statistics import TOLERANCE

_THRESHOLDS = np.arange(41) / 40
_HEIGHT = 2.0
"""Of the axes, in inches."""

Profile = Float[np.ndarray, " thresholds"]


def profiles(facts: Facts) -> Drawing | None:
    """The drawing; None if fewer than two mechanisms are ranked.

    Source: Agarwal et al. (2021), section 4.2.
    """
    board = facts.board
    if board is None or len(board.entries) < 2:
        return None
    shares_of = {entry.mechanism.label: profile(entry.skills, board.weights, _THRESHOLDS) for entry in board.entries}
    bands = _bands(board)
    return Drawing(
        name="profiles",
        title="Performance profiles",
        caption=(
            "Share of runs that reach at least a given skill, with equal weight for all categories: higher is better. "
            "Band: 95 % interval at each skill for these tasks and other seeds; the CSV file has the numbers of all "
            f"mechanisms.{facts.pale_words(shares_of)}"
        ),
        header=("mechanism", "skill", "share", "low", "high"),
        lines=tuple(
            (label, float(threshold), float(share), float(low), float(high))
            for label, shares in shares_of.items()
            for threshold, share, low, high in zip(_THRESHOLDS, shares, *bands[label], strict=True)
        ),
        draw=lambda: _draw(facts, shares_of, bands),
    )


def _bands(board: Leaderboard) -> dict[str, tuple[Profile, Profile]]:
    """Lower and upper ends for every mechanism, by its label."""
    skills = np.array([entry.skills for entry in board.entries])
    at = [over_seeds((skills >= threshold - TOLERANCE).astype(float), board.weights) for threshold in _THRESHOLDS]
    return {
        entry.mechanism.label: (np.array([each.low for each in ends]), np.array([each.high for each in ends]))
        for entry, ends in zip(board.entries, zip(*at, strict=True), strict=True)
    }


def _draw(facts: Facts, shares_of: dict[str, Profile], bands: dict[str, tuple[Profile, Profile]]) -> Figure:
    looks = {label: look for label, look in facts.looks.items() if label in shares_of}
    has_pale = len(shares_of) > len(looks)
    below = height_of(looks, SINGLE, has_pale=has_pale) + 0.3
    figure = Figure(figsize=(SINGLE, below + _HEIGHT + 0.1))
    axis = place(figure, 0.42, below, SINGLE - 0.42 - 0.1, _HEIGHT)
    axis.grid(color="#E6E6E6", linewidth=0.4)
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 1.02)
    draw_lines(axis, {label: (_THRESHOLDS, shares) for label, shares in shares_of.items()}, bands, looks)
    axis.set_xlabel("skill", labelpad=1)
    axis.set_ylabel("runs with that skill or more, %", labelpad=2)
    axis.xaxis.set_major_formatter(PLAIN)
    axis.yaxis.set_major_formatter(PERCENT)
    draw_legend(figure, looks, has_pale=has_pale, has_markers=False)
    return figure
