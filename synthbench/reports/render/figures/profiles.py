"""Performance profiles: how many runs of a mechanism reach a skill."""

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from synthbench.reports.aggregates import PerTask, balanced, over_seeds, profile, reached
from synthbench.reports.leaderboard import Leaderboard
from synthbench.reports.render.figures.drawing import PERCENT, PLAIN, Drawing
from synthbench.reports.render.figures.facts import Facts
from synthbench.reports.render.figures.lines import draw_lines, panel_of_shares

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
    weights = balanced([task.category for task in board.tasks])
    shares_of = {entry.mechanism.label: profile(entry.skills, weights, _THRESHOLDS) for entry in board.entries}
    bands = _bands(board, weights)
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


def _bands(board: Leaderboard, weights: PerTask) -> dict[str, tuple[Profile, Profile]]:
    """Lower and upper ends for every mechanism, by its label."""
    skills = np.array([entry.skills for entry in board.entries])
    at = [over_seeds(reached(skills, threshold), weights) for threshold in _THRESHOLDS]
    _value, low, high = np.array(at).transpose(2, 1, 0)  # [entries, thresholds]
    return {entry.mechanism.label: ends for entry, ends in zip(board.entries, zip(low, high, strict=True), strict=True)}


def _draw(facts: Facts, shares_of: dict[str, Profile], bands: dict[str, tuple[Profile, Profile]]) -> Figure:
    looks = {label: look for label, look in facts.looks.items() if label in shares_of}
    figure, axis = panel_of_shares(
        looks, "skill", "runs with that skill or more, %", height=_HEIGHT, has_pale=len(shares_of) > len(looks)
    )
    axis.set_xlim(0, 1)
    draw_lines(axis, {label: (_THRESHOLDS, shares) for label, shares in shares_of.items()}, bands, looks)
    axis.xaxis.set_major_formatter(PLAIN)
    axis.yaxis.set_major_formatter(PERCENT)
    return figure
