"""Return whether one number a mechanism has predicts another: rank correlations, with intervals over mechanisms.

Arrays hold one number for each mechanism along the last axis; leading axes broadcast, as draws of mechanisms. All
draws rank anew.
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
"""With fewer mechanisms a rank correlation says nothing."""
FEWEST_FAMILIES = 5
"""Fewer are not drawn from."""


def spearman(x: Numbers, y: Numbers, *covariates: Numbers, axis: int = -1) -> Float[np.ndarray, "*draws"]:
    """Spearman's rho, partial if there are covariates: of the ranks, after those of the covariates were taken out.

    NaN where one side does not vary.

    Args:
        x: Predictor.
        y: Outcome.
        covariates: What both may follow from.
        axis: Along which mechanisms lie; only the last is allowed, and scipy names it.

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
    """Rho of ``x`` with ``first`` less that with ``second``; ``axis`` as in :func:`spearman`."""
    return np.asarray(spearman(x, first, axis=axis) - spearman(x, second, axis=axis))


def interval(statistic: Statistic, *columns: Float[np.ndarray, " mechanisms"]) -> Interval:
    """A statistic of some columns with its interval by a bootstrap over mechanisms, bias-corrected and accelerated.

    Mechanisms that lack a number (NaN) are left out. All is NaN with fewer than :data:`LEAST` others.

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
    """The same by a bootstrap over families, since mechanisms of one family are not independent: percentiles."""
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
    """Chance of a rank correlation as far from 0 as this one if the mechanisms were paired at random; two-sided."""
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
    """For each family its name, how many mechanisms it has with both numbers, and rho without them."""
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
    """Predictions for each family by weights that were fitted to all others.

    Least squares of the ranks of the columns to those of ``fit_to``, with weights of at least 0 and a constant. Nothing
    may be missing.
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
    """The columns without mechanisms that lack a number in one of them."""
    has_all = ~np.isnan(np.array(columns)).any(axis=0)
    return tuple(column[has_all] for column in columns)
