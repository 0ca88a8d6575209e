"""Paired tests between cells, and what they leave standing when there are many."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from synthbench.reports.grid import Estimate, Grid, MechanismFacts, TaskFacts

SIGNIFICANCE = 0.05
TOLERANCE = 1e-9
"""Differences below this part of a score are rounding, not data."""


class Pair(NamedTuple):
    """Two mechanisms on one task."""

    task: TaskFacts
    first: MechanismFacts
    second: MechanismFacts
    p: float
    """Two-sided p value of the paired t test over common seeds."""


def paired_p(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """Two-sided p value of the paired t test over the seeds that both have.

    Args:
        first: Score by seed.
        second: Score by seed.

    Returns:
        A number in [0, 1]. 1 below two common seeds, since nothing speaks against equality, and where all scores are
        equal. 0 where the difference is the same for all seeds and not zero: the t value is infinite.

    Source: Student (1908). With few seeds the test leans on normal differences.
    """
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < 2:
        return 1.0
    a, b = np.array([first[seed] for seed in seeds]), np.array([second[seed] for seed in seeds])
    difference = a - b
    tolerance = TOLERANCE * max(1.0, float(np.abs(a).max()), float(np.abs(b).max()))
    if np.ptp(difference) <= tolerance:
        return float(abs(difference.mean()) <= tolerance)
    # As scipy.stats.ttest_rel to the last bit, in a fortieth of the time: a report has tens of thousands of pairs.
    n, mean = len(seeds), difference.mean()
    variance = ((difference - mean) ** 2).mean() * (n / (n - 1))
    return float(2 * special.stdtr(n - 1, -abs(mean / np.sqrt(variance / n))))


def holm(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """Adjust p values so that rejecting those below a level errs anywhere with at most that probability.

    Args:
        p: One p value for each test of the family.

    Returns:
        Adjusted p values in the same order, at most 1.

    Source: Holm (1979). Holds for dependent tests.
    """
    order = np.argsort(p, kind="stable")
    factors = np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return adjusted


def combined_error(*errors: float) -> float:
    """Standard error of a sum or difference of independent estimates, each with a standard error."""
    return math.hypot(*errors)


def pairs(of: Grid) -> list[Pair]:
    """All pairs of mechanisms that both have a score, task by task, with unadjusted p values."""
    found = []
    for task in of.tasks:
        scored = [mechanism for mechanism in of.mechanisms if of.cell(task, mechanism).n]
        found += [
            Pair(task, first, second, paired_p(of.cell(task, first).scores, of.cell(task, second).scores))
            for first, second in combinations(scored, 2)
        ]
    return found


def not_separable(cells: Sequence[Estimate]) -> list[bool]:
    """Tell for each cell of a task whether its mechanism is not separable from the best one.

    The best is the first of those with the highest mean. All others are tested against it by paired t tests; the
    p values are Holm-adjusted within the task and compared with 5 %.

    Returns:
        One value for each cell; False for the best itself and for a cell without a score.
    """
    scored = [index for index, cell in enumerate(cells) if cell.n]
    tied = [False] * len(cells)
    if len(scored) < 2:
        return tied
    best = max(scored, key=lambda index: cells[index].mean)
    others = [index for index in scored if index != best]
    adjusted = holm(np.array([paired_p(cells[best].scores, cells[index].scores) for index in others]))
    for index, p in zip(others, adjusted, strict=True):
        tied[index] = bool(p >= SIGNIFICANCE)
    return tied
