"""Significance tests of differences between mechanisms, on a task or in pairs, with corrections for many tests.

All comparisons use these tests: the † marks in tables, the verdicts on tasks, and ``synthbench compare``. Scores are an
array [tasks, cells, seeds], with NaN for missing runs; a cell of a task is one mechanism. ``studies/error_rates``
simulates the error rates of the tests.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, special

SIGNIFICANCE = 0.05
CONFIDENCE = 0.95
TOLERANCE = 1e-9
"""Differences of scores below this are rounding errors, not data."""
PAIRING = 0.2
"""Runs are compared seed by seed if runs with the same seed correlate by significantly more than this."""
QUIET = 0.01
"""If a cell's variance is below this fraction of its task's variance, it is not trusted: the runs may agree by luck."""
LOUD = 3.0
"""If a cell's variance exceeds its task's variance by this factor, other cells do not count for the cell's interval."""
LEAST_PRIOR = 3.0
"""Smallest weight, in degrees of freedom, of a task's variance when a cell's variance is shrunk towards it.

Without this minimum, 95 % intervals from five seeds contain the true value in only 77 % of cases, if 8 of 10 seeds
learn a task.
"""
MOST_PRIOR = 1000.0
"""Degrees of freedom of a task's variance if the variances of its cells differ by no more than chance."""
NUM_RELABELLINGS = 9999

Scores = Float[np.ndarray, "tasks cells seeds"]
PerCell = Float[np.ndarray, "tasks cells"]
Pairs = Float[np.ndarray, "tasks pairs"]
PValues = Float[np.ndarray, " tests"]
PerShuffle = Float[np.ndarray, " shuffles"]


class Spread(NamedTuple):
    """The variance of the runs of each cell (task × mechanism), shrunk towards the variance of its task."""

    variance: PerCell
    """Variance of one run; NaN if no cell of the task has two runs."""
    dof: PerCell
    """Degrees of freedom of that variance."""
    dof_alone: PerCell
    """Degrees of freedom for a statement about this cell alone.

    If the cell's variance exceeds ``LOUD`` times the task's variance, only the cell's own runs count.
    """


class Permutation(NamedTuple):
    """The result of a permutation test, which shuffles the runs of a task among its mechanisms."""

    p: float
    """Share of shuffles in which the two most distant means are at least as far apart as in the data."""
    least_p: float
    """The smallest possible p value; it is large for few runs, which can be shuffled in few ways."""
    outlier: int
    """Index of the cell whose mean is farthest from the average of all means, in standard errors of the cell's mean."""
    p_outlier: float
    """Share of shuffles in which some mean is at least as far from the average as the outlier's mean."""


class Prior(NamedTuple):
    """The variance over seeds that is assumed on tasks where no mechanism has two runs.

    The degrees of freedom say how well the variance is known.
    """

    variance: float
    dof: float


def prior_of(scores: Scores) -> Prior | None:
    """Estimate a variance over seeds, for use on tasks where every mechanism has at most one run.

    The estimate comes from tasks where some mechanism has two or more runs. The more the variances of these tasks
    differ, the fewer degrees of freedom the estimate has. With fewer than two such tasks, the result is None.

    Source: Smyth (2004), which estimates variances of genes instead of tasks.
    """
    variance, dof = own_variance(scores)
    of_task = dof.sum(axis=1)
    is_known = of_task > 0
    if is_known.sum() < 2:
        return None
    of_task = of_task[is_known]
    variances = (dof * variance).sum(axis=1)[is_known] / of_task
    pooled = (of_task * variances).sum() / of_task.sum()
    free = max(_prior_dof(variances[None], of_task[None], np.array([[pooled]])), LEAST_PRIOR)
    return Prior(float(pooled), min(free, float(of_task.sum())))


def spread(scores: Scores, most_dof: Float[np.ndarray, " tasks"] | None = None) -> Spread:
    """Estimate the variance of each cell (mechanism on a task) by shrinking it towards the variance of its task.

    The estimate, called a moderated variance, is a mean of the cell's and the task's variance, weighted by degrees of
    freedom. The task's variance has the same degrees of freedom on all tasks, estimated from how much the variances of
    a task's cells differ.

    The runs of a cell often all learn or all fail, so we deviate from the source in three ways. The task's variance
    always has some weight. A moderated variance is never below the cell's own variance. A cell with almost no variance
    takes the variance of its task.

    Args:
        scores: Scores of all runs; NaN for missing runs.
        most_dof: For each task, the upper limit on the degrees of freedom of a moderated variance. Default: the sum of
            the degrees of freedom of the task's cells.

    Source: Smyth (2004), the moderated t statistic, with limma's cap on the degrees of freedom.
    """
    cell_variance, dof = own_variance(scores)
    all_dof = dof.sum(axis=1)
    with np.errstate(invalid="ignore"):
        pooled = ((dof * cell_variance).sum(axis=1) / all_dof)[:, None]
    prior = max(_prior_dof(cell_variance, dof, pooled), LEAST_PRIOR)
    moderated = np.maximum(cell_variance, (prior * pooled + dof * cell_variance) / (prior + dof))
    cap = (all_dof if most_dof is None else most_dof)[:, None]
    of_both = np.minimum(prior + dof, cap)
    return Spread(
        variance=np.where(cell_variance < QUIET * pooled, pooled, moderated),
        dof=of_both,
        dof_alone=np.where(cell_variance > LOUD * pooled, dof, of_both),
    )


def own_variance(scores: Scores) -> tuple[PerCell, PerCell]:
    """Return the variance of each cell's runs and its degrees of freedom; both numbers are 0 below two runs."""
    num_runs = (~np.isnan(scores)).sum(axis=2)
    dof = np.maximum(num_runs - 1.0, 0)
    means = np.nansum(scores, axis=2, keepdims=True) / np.maximum(num_runs, 1)[..., None]
    variance = np.nansum((scores - means) ** 2, axis=2) / np.maximum(dof, 1)
    variance[variance < TOLERANCE**2] = 0.0
    return variance, dof


def _prior_dof(cell_variance: PerCell, dof: PerCell, pooled: Float[np.ndarray, "tasks 1"]) -> float:
    """Estimate how many degrees of freedom a task's variance has as a prediction of its cells' variances.

    A cell is one mechanism on one task. The estimate is one number for all tasks: it is larger if the logarithms of the
    variances of a task's cells differ less.

    Source: Smyth (2004), estimation of the hyperparameters; here, each task's log variances are taken relative to their
    own mean.
    """
    is_known = (dof > 0) & (pooled > 0)
    num_known = is_known.sum(axis=1)
    is_used = is_known & (num_known > 1)[:, None]
    if not is_used.any():
        return 0.0
    half = np.where(is_used, dof, 1) / 2
    # A variance of 0 has no logarithm; it is raised to the limit below which variances are not trusted.
    variance = np.where(is_used, np.maximum(cell_variance, QUIET * pooled), 1)
    logs = np.log(variance) - special.digamma(half) + np.log(half)
    average = (logs * is_used).sum(axis=1) / np.maximum(num_known, 1)
    centred = np.where(is_used, logs - average[:, None], 0)
    by_chance = special.polygamma(1, half)[is_used].mean()
    excess = float((centred**2).sum() / (num_known[num_known > 1] - 1).sum() - by_chance)
    if excess <= special.polygamma(1, MOST_PRIOR / 2):
        return MOST_PRIOR
    return float(2 * optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-3, MOST_PRIOR / 2))


class PairTests(NamedTuple):
    """Results of t tests between all pairs of cells on each task.

    A cell is one mechanism on one task. Arrays have a row per task and a column per pair. Pairs are in the order of
    ``numpy.triu_indices(n, 1)``, where n is the number of cells of a task.
    """

    difference: Pairs
    """Mean of the first cell − mean of the second; NaN if a cell has no run."""
    error: Pairs
    """Standard error of the difference; NaN if no cell of the task has two runs."""
    dof: Pairs
    p: Pairs
    """Two-sided p values. If runs do not vary within cells, p is 1 for equal means and 0 for different ones."""


def pair_tests(scores: Scores, *, is_paired: bool) -> PairTests:
    """Compare all pairs of mechanisms on each task by t tests with moderated variances (see :func:`spread`).

    If ``is_paired`` is True, runs are compared seed by seed, on the seeds that both mechanisms have.

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
            error_of_first, error_of_second = (variance / num_runs)[:, first], (variance / num_runs)[:, second]
            dof = (error_of_first + error_of_second) ** 2 / (
                error_of_first**2 / of_cell[:, first] + error_of_second**2 / of_cell[:, second]
            )
            dof = np.minimum(dof, np.maximum(num_runs - 1.0, 0).sum(axis=1, keepdims=True))
            difference = means[:, first] - means[:, second]
            squared_error = error_of_first + error_of_second
        p = 2 * special.stdtr(np.where(squared_error == 0, 1, dof), -np.abs(difference) / np.sqrt(squared_error))
    p = np.where(squared_error == 0, np.where(np.abs(difference) <= TOLERANCE, 1.0, 0.0), p)
    is_known = ~(np.isnan(difference) | np.isnan(squared_error))
    return PairTests(difference, np.sqrt(squared_error), dof, np.where(is_known, p, math.nan))


def p_of_pairs(tests: PairTests, num_runs: Sequence[Sequence[int]], *, is_paired: bool) -> Float[np.ndarray, " tasks"]:
    """Return the p value of the t test between two mechanisms on each task.

    If the runs of neither mechanism vary, a t test gives p = 0 for any difference. In this case, the result is
    :func:`least_p`, the smallest p value that a permutation test can give.

    Args:
        tests: Results of :func:`pair_tests` for two mechanisms.
        num_runs: Numbers of runs of the first and the second mechanism, for each task.
        is_paired: True if runs are paired by seed in ``tests``.
    """
    floors = [least_p(counts, is_paired=is_paired) if min(counts) else math.nan for counts in num_runs]
    p = tests.p[:, 0]
    at_least: Float[np.ndarray, " tasks"] = np.where((tests.error[:, 0] == 0) & (p < 1), np.maximum(p, floors), p)
    return at_least


def permutation_test(scores: Float[np.ndarray, "cells seeds"], *, is_paired: bool) -> Permutation:
    """Test by permutation whether the cells (mechanisms) of a task differ, and whether one cell is an outlier.

    The runs of the task are shuffled among its cells. The p value is the share of shuffles in which the two most
    distant means are at least as far apart as in the data. A distance is divided by its standard error, so cells may
    have different numbers of runs, even a single run.

    The rate of false positives is exact if all cells have the same distribution of runs. It is not exact if only the
    means are equal and the spreads differ; ``studies/error_rates`` shows by how much.

    Args:
        scores: Scores of two or more cells, each with at least one run; NaN for missing runs.
        is_paired: True to shuffle runs only among runs with the same seed, for the seeds that all cells have. With
            fewer than two such seeds, all runs are shuffled.

    Source: Fisher (1935), Pitman (1937); Tukey (1953) and Kramer (1956) for the distance; Phipson & Smyth (2010) for
    including the observed runs among the shuffles.
    """
    is_common = ~np.isnan(scores).any(axis=0)
    is_paired &= bool(is_common.sum() > 1)
    if is_paired:
        scores = scores[:, is_common]
    is_there = ~np.isnan(scores)
    num_runs = is_there.sum(axis=1)
    centred = scores - scores[is_there].mean()
    if is_paired:
        centred -= centred.mean(axis=0)
        order = _shuffles(len(scores), scores.shape[1])
        means = np.take_along_axis(centred.T[None], order, axis=2).mean(axis=1)
    else:
        to_mean = np.repeat(np.eye(len(scores)), num_runs, axis=0) / num_runs
        means = centred[is_there][_shuffles(int(num_runs.sum()))] @ to_mean
    means = np.vstack([np.nansum(centred, axis=1) / num_runs, means])  # as observed, then shuffled
    within = np.maximum(np.nansum(centred**2) - (num_runs * means**2).sum(axis=1), 0)
    distances = np.abs(means - means.mean(axis=1, keepdims=True)) * np.sqrt(num_runs)
    return Permutation(
        p=_share_as_far(_farthest(means, num_runs), within),
        least_p=least_p(num_runs.tolist(), is_paired=is_paired),
        outlier=int(distances[0].argmax()),
        p_outlier=_share_as_far(distances.max(axis=1), within),
    )


def least_p(num_runs: Sequence[int], *, is_paired: bool) -> float:
    """Return the smallest p value that a permutation test can give for mechanisms with these numbers of runs.

    This p value is reached if all runs of a mechanism are equal, but mechanisms differ. Only shuffles that give each
    mechanism all runs of a single mechanism are then as extreme as the data.
    """
    exchanges = math.prod(map(math.factorial, Counter(num_runs).values()))
    if is_paired:
        return float(exchanges ** (1.0 - min(num_runs)))
    return exchanges * math.prod(map(math.factorial, num_runs)) / math.factorial(sum(num_runs))


def _farthest(means: Float[np.ndarray, "shuffles cells"], num_runs: Int[np.ndarray, " cells"]) -> PerShuffle:
    """Return, for each shuffle, the largest ``|a - b| / sqrt(1 / n_a + 1 / n_b)`` over all means a and b.

    ``n_a`` and ``n_b`` are the numbers of runs behind a and b, which are means of two cells (mechanisms).
    """
    ends = {
        size: (means[:, num_runs == size].max(axis=1), means[:, num_runs == size].min(axis=1))
        for size in sorted(set(num_runs.tolist()))
    }
    distances = [
        (high - low) / math.sqrt(1 / size + 1 / other)
        for (size, (high, _)), (other, (_, low)) in product(ends.items(), repeat=2)
    ]
    farthest: PerShuffle = np.max(distances, axis=0)
    return farthest


def _share_as_far(distances: PerShuffle, within: PerShuffle) -> float:
    """Return the share of shuffles of the runs that are at least as extreme as the observed order.

    Each array has an entry per shuffle, and the first entry is the observed order. A shuffle is more extreme if the
    distance d of its means is larger relative to the spread within cells (mechanisms). The comparison uses d² / (d² +
    within), where ``within`` is the sum of squares within cells. This fraction increases with d² / within, and is 1 if
    runs are equal within cells.
    """
    of_all = distances**2 + within
    studentised = np.where(of_all > TOLERANCE**2, distances**2 / np.maximum(of_all, TOLERANCE**2), 0)
    return float((studentised >= studentised[0] - TOLERANCE).mean())


@lru_cache(maxsize=64)
def _shuffles(num_places: int, *shape: int) -> Int[np.ndarray, "shuffles *shape places"]:
    """Return ``NUM_RELABELLINGS`` random permutations of the indices below ``num_places``, the same on every call.

    With ``shape``, each shuffle is an array of this shape, whose entries are independent permutations.
    """
    places = np.tile(np.arange(num_places, dtype=np.int32), (NUM_RELABELLINGS, *shape, 1))
    return np.random.Generator(np.random.Philox(0)).permuted(places, axis=-1)


def shares_seeds(scores: Scores) -> bool:
    """Return True if runs with the same seed, but of different mechanisms, correlate enough to be compared in pairs.

    The correlation must exceed ``PAIRING`` by two standard errors. Pairing uncorrelated runs would only halve a test's
    degrees of freedom.
    """
    correlation, error = seed_correlation(scores)
    return correlation - 2 * error > PAIRING


def seed_correlation(scores: Scores) -> tuple[float, float]:
    """Return the mean correlation, over seeds, between two mechanisms on a task, and the standard error of this mean.

    The mean is over all tasks and pairs of mechanisms. A mechanism is ignored on a task if it lacks a seed there, or if
    its runs are all equal. If no pair is left, the correlation is 0 and its error is infinite.
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


def pooled_std(scores: Float[np.ndarray, "cells seeds"]) -> float:
    """Estimate the standard deviation of one run from all cells (mechanisms) of a task; NaN if no cell has two runs."""
    variance, dof = own_variance(scores[None])
    return math.sqrt(float((dof * variance).sum() / dof.sum())) if dof.any() else math.nan


def holm(p: PValues) -> PValues:
    """Adjust p values for several tests by Holm's procedure (family-wise error rate); NaN stays NaN.

    If every hypothesis with an adjusted p below α is rejected, the probability of any false rejection is at most α.
    This holds for dependent tests too.

    Source: Holm (1979).
    """
    return _adjusted(p, lambda p: np.maximum.accumulate(np.arange(len(p), 0, -1) * p))


def benjamini_hochberg(p: PValues) -> PValues:
    """Adjust p values for several tests by the Benjamini-Hochberg procedure (false discovery rate); NaN stays NaN.

    If every hypothesis with an adjusted p below α is rejected, the expected share of false rejections among all
    rejections is at most α.

    Source: Benjamini & Hochberg (1995).
    """
    return _adjusted(p, lambda p: np.minimum.accumulate((p * (len(p) / np.arange(1, len(p) + 1)))[::-1])[::-1])


def _adjusted(p: PValues, adjust: Callable[[PValues], PValues]) -> PValues:
    """Sort p values, apply ``adjust`` to them, clip them to 1 and restore their order; NaN values are skipped."""
    is_test = ~np.isnan(p)
    order = np.argsort(p[is_test], kind="stable")
    adjusted = np.full(p.shape, math.nan)
    adjusted[np.flatnonzero(is_test)[order]] = np.minimum(1.0, adjust(p[is_test][order]))
    return adjusted


def omega_squared(scores: Float[np.ndarray, "cells seeds"]) -> float:
    """Estimate ω², the share of a task's variance that lies between mechanisms, corrected for chance.

    Cells are mechanisms. If they do not truly differ, ω² is about 0 on average, whatever the numbers of mechanisms and
    runs. The result is 0 if all runs are equal. It is NaN for fewer than two mechanisms, or if no mechanism has two
    runs.

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
