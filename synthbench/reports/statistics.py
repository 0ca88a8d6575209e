"""What runs say of a difference: tests within a task, pairs of mechanisms, and many tests at once.

Everything that compares uses these: the daggers of the tables, what a task separates, ``compare``. All take scores as
an array [tasks, cells, seeds], NaN where a run is missing; how often they err is simulated in ``docs/simulation.py``.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, special

SIGNIFICANCE = 0.05
CONFIDENCE = 0.95
TOLERANCE = 1e-9
"""Differences below this part of a score are rounding, not data."""
PAIRING = 0.2
"""Correlation of runs that share a seed above which they are compared seed by seed."""
QUIET = 0.01
"""Part of a task's variance below which a cell has too little of its own: its runs may all have had the same luck."""
LOUD = 3.0
"""Times a task's variance above which a cell is like no other of its task: an interval of it cannot rely on them."""
LEAST_PRIOR = 3.0
"""Degrees of freedom that a task's variance always has in that of a cell. Without them the interval of a cell that
learns on 8 of 10 seeds covers 77 % at five seeds."""
MOST_PRIOR = 1000.0
"""Stands for a prior that is certain: variances that differ by no more than chance."""
NUM_RELABELLINGS = 9999

Scores = Float[np.ndarray, "tasks cells seeds"]
PerCell = Float[np.ndarray, "tasks cells"]
Pairs = Float[np.ndarray, "tasks pairs"]


class Spread(NamedTuple):
    """How far the runs of a cell lie apart."""

    variance: PerCell
    """Of one run; NaN in a task of which no cell has two runs."""
    dof: PerCell
    """Degrees of freedom of that variance."""
    dof_alone: PerCell
    """The same for a statement about this cell alone: its own only, where it scatters far more than its task."""


class Permutation(NamedTuple):
    """What shuffling the runs of a task among its mechanisms says."""

    p: float
    """Share of shuffles in which two means are at least as far apart as the farthest are."""
    least_p: float
    """What p would be at the clearest difference: few runs can be shuffled in few ways."""
    outlier: int
    """The cell whose mean is farthest from the average of all means."""
    p_outlier: float
    """Share of shuffles in which some mean is at least as far from it."""


def spread(scores: Scores, most_dof: Float[np.ndarray, " tasks"] | None = None) -> Spread:
    """Moderated variances: each cell's own, drawn towards that of its task.

    The variance of three runs is hardly known, while the cells of a task tend to scatter alike. So a cell's variance is
    the mean of its own and of the task's, weighted by degrees of freedom; those of the task's are estimated from how
    much variances differ within tasks, over all tasks. Three departures from the source, since runs of neural networks
    often all learn or all fail: the task's variance always weighs something, a cell is never taken to scatter less than
    it does, and one that hardly scatters takes the task's.

    Args:
        scores: One number a run.
        most_dof: Degrees of freedom that no variance has more than; those of all cells of the task if None.

    Source: Smyth (2004), the moderated t statistic, with the cap on the degrees of freedom of limma.
    """
    num_runs = (~np.isnan(scores)).sum(axis=2)
    dof = np.maximum(num_runs - 1.0, 0)
    means = np.nansum(scores, axis=2, keepdims=True) / np.maximum(num_runs, 1)[..., None]
    own = np.nansum((scores - means) ** 2, axis=2) / np.maximum(dof, 1)
    own[own < TOLERANCE**2] = 0.0
    all_dof = dof.sum(axis=1)
    with np.errstate(invalid="ignore"):
        pooled = ((dof * own).sum(axis=1) / all_dof)[:, None]
    prior = max(_prior_dof(own, dof, pooled), LEAST_PRIOR)
    moderated = np.maximum(own, (prior * pooled + dof * own) / (prior + dof))
    cap = (all_dof if most_dof is None else most_dof)[:, None]
    of_both = np.minimum(prior + dof, cap)
    return Spread(
        np.where(own < QUIET * pooled, pooled, moderated), of_both, np.where(own > LOUD * pooled, dof, of_both)
    )


def _prior_dof(own: PerCell, dof: PerCell, pooled: Float[np.ndarray, "tasks 1"]) -> float:
    """Degrees of freedom of the tasks' variances, from how much log variances differ within tasks.

    Source: Smyth (2004), estimation of the hyperparameters; here around each task's own mean.
    """
    is_known = (dof > 0) & (pooled > 0)
    num_known = is_known.sum(axis=1)
    is_used = is_known & (num_known > 1)[:, None]
    if not is_used.any():
        return 0.0
    half = np.where(is_used, dof, 1) / 2
    # A variance of 0 has no logarithm; one that is that of a quiet cell says as much.
    logs = np.log(np.where(is_used, np.maximum(own, QUIET * pooled), 1)) - special.digamma(half) + np.log(half)
    average = (logs * is_used).sum(axis=1) / np.maximum(num_known, 1)
    centred = np.where(is_used, logs - average[:, None], 0)
    by_chance = special.polygamma(1, half)[is_used].mean()
    excess = float((centred**2).sum() / (num_known[num_known > 1] - 1).sum() - by_chance)
    if excess <= special.polygamma(1, MOST_PRIOR / 2):
        return MOST_PRIOR
    return float(2 * optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-3, MOST_PRIOR / 2))


class PairTests(NamedTuple):
    """All pairs of cells of each task, a column a pair, in the order of ``numpy.triu_indices(cells, 1)``."""

    difference: Pairs
    """Mean of the first less that of the second; NaN where one has no run."""
    error: Pairs
    """Standard error of the difference; NaN where no cell of the task has two runs."""
    dof: Pairs
    p: Pairs
    """Two-sided; 1 where nothing differs, 0 where cells differ of which no run differs from another."""


def pair_tests(scores: Scores, *, is_paired: bool) -> PairTests:
    """Moderated t tests between all pairs of cells of each task.

    Args:
        scores: One number a run.
        is_paired: Whether runs of one seed are compared with each other, over the seeds that both cells have.

    Source: Smyth (2004); Welch (1947) for the degrees of freedom of two variances.
    """
    first, second = np.triu_indices(scores.shape[1], 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        if is_paired:
            differences = scores[:, first] - scores[:, second]
            num_runs = (~np.isnan(differences)).sum(axis=2)
            # Of k mechanisms only k - 1 differences are free.
            most_dof = (scores.shape[1] - 1) * np.maximum(num_runs.max(axis=1, initial=0) - 1.0, 0)
            variance, dof, _ = spread(differences, most_dof)
            difference = np.nansum(differences, axis=2) / num_runs
            squared_error = variance / num_runs
        else:
            num_runs = (~np.isnan(scores)).sum(axis=2)
            means = np.nansum(scores, axis=2) / num_runs
            variance, of_cell, _ = spread(scores)
            one, other = (variance / num_runs)[:, first], (variance / num_runs)[:, second]
            dof = (one + other) ** 2 / (one**2 / of_cell[:, first] + other**2 / of_cell[:, second])
            dof = np.minimum(dof, np.maximum(num_runs - 1.0, 0).sum(axis=1, keepdims=True))
            difference = means[:, first] - means[:, second]
            squared_error = one + other
        p = 2 * special.stdtr(np.where(squared_error == 0, 1, dof), -np.abs(difference) / np.sqrt(squared_error))
    p = np.where(squared_error == 0, np.where(np.abs(difference) <= TOLERANCE, 1.0, 0.0), p)
    is_known = ~(np.isnan(difference) | np.isnan(squared_error))
    return PairTests(difference, np.sqrt(squared_error), dof, np.where(is_known, p, math.nan))


def permutation_test(scores: Float[np.ndarray, "cells seeds"], *, is_paired: bool) -> Permutation:
    """Shuffle the runs of a task among its cells: how often do means lie as far apart as they do?

    The level is exact where the runs of all cells have one distribution. It is not where they have one mean and other
    spreads: docs/statistics.md has the number.

    Args:
        scores: One number a run, NaN where one is missing; two cells with a run or more.
        is_paired: Whether runs are shuffled within their seed only, over the seeds that all cells have. Where these
            are fewer than two, runs are shuffled freely.

    Source: Fisher (1935), Pitman (1937); Phipson & Smyth (2010) for counting the runs as they are among the shuffles.
    """
    is_common = ~np.isnan(scores).any(axis=0)
    is_paired &= bool(is_common.sum() > 1)
    if is_paired:
        scores = scores[:, is_common]
    is_there = ~np.isnan(scores)
    num_runs = is_there.sum(axis=1)
    if is_paired:
        order = _shuffles_within(scores.shape[1], len(scores))
        means = np.take_along_axis(scores.T[None], order, axis=2).mean(axis=1)
    else:
        to_mean = np.repeat(np.eye(len(scores)), num_runs, axis=0) / num_runs
        means = scores[is_there][_shuffles(int(num_runs.sum()))] @ to_mean
    observed = np.nansum(scores, axis=1) / num_runs
    distances = np.abs(observed - observed.mean())
    outlier = int(distances.argmax())
    shuffled = np.abs(means - means.mean(axis=1, keepdims=True)).max(axis=1)
    return Permutation(
        p=_share(np.ptp(means, axis=1), float(np.ptp(observed))),
        least_p=least_p(num_runs.tolist(), is_paired=is_paired),
        outlier=outlier,
        p_outlier=_share(shuffled, float(distances[outlier])),
    )


def least_p(num_runs: Sequence[int], *, is_paired: bool) -> float:
    """The p value of the clearest difference that there can be between some cells.

    All runs of one cell are below, and all of another above those of the others, which may be shuffled at will.

    Args:
        num_runs: Of every cell.
        is_paired: Whether runs are shuffled within their seed only.
    """
    num_cells, total = len(num_runs), sum(num_runs)
    if is_paired:
        return math.prod([1 / (num_cells * (num_cells - 1))] * (min(num_runs) - 1))
    sizes = Counter(permutations(num_runs, 2))
    ways = [
        count * math.prod(map(math.factorial, (low, high, total - low - high))) for (low, high), count in sizes.items()
    ]
    return min(ways) / math.factorial(total)


def _share(shuffled: Float[np.ndarray, " shuffles"], observed: float) -> float:
    return float((1 + (shuffled >= observed - TOLERANCE).sum()) / (1 + len(shuffled)))


@lru_cache(maxsize=64)
def _shuffles(num_runs: int) -> Int[np.ndarray, "shuffles runs"]:
    places = np.tile(np.arange(num_runs, dtype=np.int32), (NUM_RELABELLINGS, 1))
    return np.random.Generator(np.random.Philox(0)).permuted(places, axis=1)


@lru_cache(maxsize=64)
def _shuffles_within(num_seeds: int, num_cells: int) -> Int[np.ndarray, "shuffles seeds cells"]:
    places = np.tile(np.arange(num_cells, dtype=np.int32), (NUM_RELABELLINGS, num_seeds, 1))
    return np.random.Generator(np.random.Philox(0)).permuted(places, axis=2)


def shares_seeds(scores: Scores) -> bool:
    """Whether runs that share a seed go together so far that they are to be compared seed by seed.

    That is so if their correlation exceeds ``PAIRING`` by two standard errors: pairing where it is not so throws away
    half of the degrees of freedom, and few tasks do not tell.
    """
    correlation, error = seed_correlation(scores)
    return correlation - 2 * error > PAIRING


def seed_correlation(scores: Scores) -> tuple[float, float]:
    """Mean correlation of the runs that share a seed, over tasks and pairs of cells, with its standard error.

    PerCell that lack a seed of the others, or do not scatter, do not count. Where none are left it is 0 and any.
    """
    centred = scores - scores.mean(axis=2, keepdims=True)
    size = np.sqrt((centred**2).sum(axis=2, keepdims=True))
    is_used = size > TOLERANCE
    units = np.where(is_used, centred / np.where(is_used, size, 1), 0)
    num_cells = is_used.sum(axis=(1, 2))
    of_pairs = (units.sum(axis=1) ** 2).sum() - (units**2).sum()
    num_pairs = int((num_cells * (num_cells - 1)).sum()) // 2
    if not num_pairs:
        return 0.0, math.inf
    # Of independent runs, a correlation over n seeds has variance 1 / (n - 1).
    return float(of_pairs / num_pairs / 2), 1 / math.sqrt(num_pairs * (scores.shape[2] - 1))


def holm(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """Adjust p values so that rejecting those below a level errs anywhere with at most that probability.

    Args:
        p: One p value for each test of the family; NaN is no test and stays.

    Returns:
        Adjusted p values in the same order, at most 1.

    Source: Holm (1979). Holds for dependent tests.
    """
    is_test = ~np.isnan(p)
    order = np.argsort(p[is_test], kind="stable")
    ascending = np.maximum.accumulate(np.arange(len(order), 0, -1) * p[is_test][order])
    adjusted = np.full(p.shape, math.nan)
    adjusted[np.flatnonzero(is_test)[order]] = np.minimum(1.0, ascending)
    return adjusted


def benjamini_hochberg(p: Float[np.ndarray, " tests"]) -> Float[np.ndarray, " tests"]:
    """Adjust p values so that, of what is rejected below a level, at most that share is rejected in error on average.

    Args:
        p: One p value for each test of the family; NaN is no test and stays.

    Returns:
        Adjusted p values in the same order, at most 1.

    Source: Benjamini & Hochberg (1995). ``scipy.stats`` has it too, and takes most of a second to import.
    """
    is_test = ~np.isnan(p)
    order = np.argsort(p[is_test], kind="stable")
    scaled = p[is_test][order] * (len(order) / np.arange(1, len(order) + 1))
    adjusted = np.full(p.shape, math.nan)
    adjusted[np.flatnonzero(is_test)[order]] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return adjusted


def omega_squared(scores: Float[np.ndarray, "cells seeds"]) -> float:
    """Share of the variance that lies between cells, with what chance puts there taken off; 0 if nothing varies.

    About 0 where nothing differs, whatever the number of cells and runs: η² is then (cells - 1) / (runs - 1).

    Args:
        scores: One number a run, NaN where one is missing.

    Returns:
        A number in [0, 1]; NaN below two cells or where no cell has two runs.

    Source: Hays (1963).
    """
    num_runs = (~np.isnan(scores)).sum(axis=1)
    scores, num_runs = scores[num_runs > 0], num_runs[num_runs > 0]
    free = int(num_runs.sum()) - len(scores)
    if len(scores) < 2 or not free:
        return math.nan
    means = np.nansum(scores, axis=1) / num_runs
    mean = np.nansum(scores) / num_runs.sum()
    between = float((num_runs * (means - mean) ** 2).sum())
    within = float(np.nansum((scores - means[:, None]) ** 2)) / free
    total = between + within * free
    if total <= TOLERANCE**2:
        return 0.0
    return max(0.0, (between - (len(scores) - 1) * within) / (total + within))
