"""Rank correlations between two numbers of each mechanism, with intervals over mechanisms.

The last axis of an array holds one number for each mechanism; leading axes are draws of mechanisms. Ranks are computed
anew in every draw.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from synthbench.reports.aggregates import UNKNOWN, Interval
from synthbench.reports.statistics import CONFIDENCE

Numbers = Float[np.ndarray, "*#draws mechanisms"]
Statistic = Callable[..., Float[np.ndarray, "*draws"]]

NUM_DRAWS = 10_000
LEAST = 8
"""Smallest number of mechanisms for which a rank correlation is computed."""
FEWEST_FAMILIES = 5
"""Smallest number of families for which a bootstrap over families is made."""


def spearman(x: Numbers, y: Numbers, *covariates: Numbers, axis: int = -1) -> Float[np.ndarray, "*draws"]:
    """Compute Spearman's rho; with covariates, compute partial rho from the residuals of the ranks.

    The result is NaN if ``x`` or ``y`` does not vary.

    Args:
        x: Predictor.
        y: Outcome.
        covariates: Quantities that may explain both ``x`` and ``y``.
        axis: Axis of the mechanisms, as SciPy passes it; only the last axis is allowed.

    Example:
        >>> float(spearman(np.array([1.0, 2.0, 3.0, 5.0]), np.array([1.0, 4.0, 3.0, 9.0])).round(1))
        0.8
    """
    ranks = (stats.rankdata(values, axis=axis) for values in (x, y, *covariates))
    first, second, *others = (values - values.mean(axis=-1, keepdims=True) for values in ranks)
    if others:
        design = np.stack(np.broadcast_arrays(*others), axis=-1)
        projection = design @ np.linalg.pinv(design)
        first, second = (values - (projection @ values[..., None])[..., 0] for values in (first, second))
    norms = np.sqrt((first**2).sum(axis=-1) * (second**2).sum(axis=-1))
    # Ranks are halves of integers; what is smaller than this is rounding.
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(norms > 1e-9, (first * second).sum(axis=-1) / norms, math.nan)


def contrast(x: Numbers, first: Numbers, second: Numbers, axis: int = -1) -> Float[np.ndarray, "*draws"]:
    """Compute rho of ``x`` and ``first`` minus rho of ``x`` and ``second``; ``axis`` is that of :func:`spearman`."""
    return np.asarray(spearman(x, first, axis=axis) - spearman(x, second, axis=axis))


def interval(statistic: Statistic, *columns: Float[np.ndarray, " mechanisms"]) -> Interval:
    """Compute a statistic, and its interval by a bias-corrected and accelerated bootstrap over mechanisms.

    Mechanisms that lack a number (NaN) are left out. If fewer than :data:`LEAST` remain, the result is NaN.

    Source: Efron (1987), Better bootstrap confidence intervals.
    """
    columns = complete(*columns)
    if columns[0].size < LEAST:
        return UNKNOWN
    value = float(statistic(*columns))
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        # Where no draw differs, there is no interval.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            columns, statistic, n_resamples=NUM_DRAWS, paired=True, vectorized=True, confidence_level=CONFIDENCE,
            method="BCa", rng=np.random.default_rng(0), batch=1000,
        )  # fmt: skip
    return Interval(value, float(found.confidence_interval.low), float(found.confidence_interval.high))


def interval_over_families(
    statistic: Statistic, families: Sequence[str], *columns: Float[np.ndarray, " mechanisms"]
) -> Interval:
    """Compute a statistic, and its interval by a percentile bootstrap over families of mechanisms."""
    has_all = ~np.isnan(np.array(columns)).any(axis=0)
    kept = complete(*columns)
    names = np.array(families)[has_all]
    runs = [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]
    if len(runs) < FEWEST_FAMILIES:
        return Interval(float(statistic(*kept)) if has_all.sum() >= LEAST else math.nan, math.nan, math.nan)
    drawn = np.random.default_rng(0).integers(len(runs), size=(NUM_DRAWS, len(runs)))
    chosen = sorted((np.concatenate([runs[family] for family in draw]) for draw in drawn), key=len)
    # Draws of equally many mechanisms are computed at once.
    alike = [np.array(list(group)) for _, group in groupby(chosen, key=len)]
    draws = np.concatenate([statistic(*(column[group] for column in kept)) for group in alike])
    low, high = np.nanquantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(statistic(*kept)), float(low), float(high))


def permutation_p(x: Float[np.ndarray, " mechanisms"], y: Float[np.ndarray, " mechanisms"]) -> float:
    """Compute the two-sided p value of a rank correlation by random permutations of the mechanisms."""
    x, y = complete(x, y)
    if x.size < LEAST:
        return math.nan
    found = stats.permutation_test(
        (x,), partial(spearman, y), permutation_type="pairings", vectorized=True, n_resamples=NUM_DRAWS - 1,
        rng=np.random.default_rng(0), batch=1000,
    )  # fmt: skip
    return float(found.pvalue)


def without_each(
    families: Sequence[str], x: Float[np.ndarray, " mechanisms"], y: Float[np.ndarray, " mechanisms"]
) -> Iterator[tuple[str, int, float]]:
    """Yield each family's name, its number of mechanisms with both numbers, and rho over all other mechanisms."""
    has_both = ~np.isnan(x + y)
    for family in dict.fromkeys(families):
        is_in = np.array([name == family for name in families])
        kept = has_both & ~is_in
        rho = float(spearman(x[kept], y[kept])) if kept.sum() >= LEAST else math.nan
        yield family, int((has_both & is_in).sum()), rho


def fitted(
    families: Sequence[str],
    x: Float[np.ndarray, "mechanisms columns"],
    fit_to: Float[np.ndarray, " mechanisms"],
) -> Float[np.ndarray, " mechanisms"]:
    """Predict the outcome for each family with weights that were fitted to all other families.

    The ranks of the columns are fitted to the ranks of ``fit_to`` by least squares, with non-negative weights and a
    constant. No number may be missing.
    """
    ranks = stats.rankdata(x, axis=0)
    target = stats.rankdata(fit_to)
    predicted = np.empty(len(families))
    for family in dict.fromkeys(families):
        is_out = np.array([name == family for name in families])
        means = ranks[~is_out].mean(axis=0), target[~is_out].mean()
        weights, _ = optimize.nnls(ranks[~is_out] - means[0], target[~is_out] - means[1])
        predicted[is_out] = (ranks[is_out] - means[0]) @ weights + means[1]
    return predicted


def complete(*columns: Float[np.ndarray, " mechanisms"]) -> tuple[Float[np.ndarray, " some"], ...]:
    """Return the columns without the mechanisms that lack a number in any column."""
    has_all = ~np.isnan(np.array(columns)).any(axis=0)
    return tuple(column[has_all] for column in columns)
