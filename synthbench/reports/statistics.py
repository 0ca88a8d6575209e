"""Paired tests between cells, and what they leave standing when there are many."""

import math
from collections.abc import Mapping, Sequence
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
        A number in [0, 1]; see :func:`paired_ps`.
    """
    scores = _by_seed([first, second])
    return float(paired_ps(scores[:1], scores[1:])[0])


def paired_ps(
    first: Float[np.ndarray, "tests seeds"], second: Float[np.ndarray, "tests seeds"]
) -> Float[np.ndarray, " tests"]:
    """Two-sided p values of many paired t tests, each over the seeds that both sides have.

    Args:
        first: Scores; NaN where a seed is missing.
        second: Those of the other side, of the same seeds.

    Returns:
        Numbers in [0, 1]. 1 below two common seeds, since nothing speaks against equality, and where all scores are
        equal. 0 where the difference is the same for all seeds and not zero: the t value is infinite.

    Source: Student (1908). With few seeds the test leans on normal differences.
    """
    if not first.size:
        return np.ones(len(first))
    is_paired = ~(np.isnan(first) | np.isnan(second))
    num_seeds = is_paired.sum(axis=1)
    a, b = np.where(is_paired, first, 0), np.where(is_paired, second, 0)
    mean = (a - b).sum(axis=1) / np.maximum(num_seeds, 1)
    centred = np.where(is_paired, a - b - mean[:, None], 0)
    tolerance = TOLERANCE * np.maximum(1, np.maximum(np.abs(a), np.abs(b)).max(axis=1))
    # As scipy.stats.ttest_rel, all tests at once: a report has tens of thousands of them.
    variance = (centred**2).sum(axis=1) / np.maximum(num_seeds - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * special.stdtr(num_seeds - 1, -np.abs(mean) / np.sqrt(variance / num_seeds))
    # Centred differences have 0 between them, so what is paired with nothing does not widen their range.
    p = np.where(np.ptp(centred, axis=1) <= tolerance, np.abs(mean) <= tolerance, p)
    return np.where(num_seeds < 2, 1.0, p)


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
    return [
        pair
        for task in of.tasks
        for pair in pairs_of(task, {mechanism: of.cell(task, mechanism).scores for mechanism in of.mechanisms})
    ]


def pairs_of(task: TaskFacts, scores: Mapping[MechanismFacts, Mapping[int, float]]) -> list[Pair]:
    """All pairs of mechanisms that both have a score on a task, with unadjusted p values.

    Args:
        task: The task.
        scores: Of every mechanism, by seed.
    """
    scored = [mechanism for mechanism, own in scores.items() if own]
    by_seed = _by_seed([scores[mechanism] for mechanism in scored])
    first, second = np.triu_indices(len(scored), 1)
    p = paired_ps(by_seed[first], by_seed[second])
    return [
        Pair(task, scored[one], scored[other], value)
        for one, other, value in zip(first.tolist(), second.tolist(), p.tolist(), strict=True)
    ]


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
    scores = _by_seed([cell.scores for cell in cells])
    adjusted = holm(paired_ps(np.broadcast_to(scores[best], (len(others), scores.shape[1])), scores[others]))
    for index, p in zip(others, adjusted, strict=True):
        tied[index] = bool(p >= SIGNIFICANCE)
    return tied


def _by_seed(scores: Sequence[Mapping[int, float]]) -> Float[np.ndarray, "cells seeds"]:
    """The scores of some cells of a task, a column a seed; NaN where a cell lacks it."""
    seeds = sorted({seed for own in scores for seed in own})
    return np.array([[own.get(seed, math.nan) for seed in seeds] for own in scores]).reshape(len(scores), len(seeds))
