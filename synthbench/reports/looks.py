"""Which tasks separate mechanisms and which pairs differ: tested once, or at several looks while seeds are added.

On a ladder, all mechanisms have three seeds; pairs that these do not decide get five, then ten. Testing at 5 % at each
look would err in more than 5 % of the cases. So each look spends a share of the 5 %: that of its new seeds among
the ten. By Bonferroni's inequality, all looks together err no more often than a single test, whatever was decided
on the way. A p value is divided by the share of its look, and the smallest over the looks counts. A ladder to which no
seed was added is tested once.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from synthbench.reports.statistics import (
    SIGNIFICANCE,
    TOLERANCE,
    Permutation,
    Scores,
    benjamini_hochberg,
    holm,
    pair_tests,
    permutation_test,
    shares_seeds,
)


class Look(NamedTuple):
    """A look at the runs."""

    num_seeds: int | None
    """Of each cell the first ones are tested; None: all."""
    share: float
    """Of the error that all looks may make together."""


ONCE = (Look(None, 1.0),)
"""All runs are there before anything is tested."""
LOOKS = (Look(3, 0.3), Look(5, 0.2), Look(10, 0.5))
"""Those of a ladder. Seeds beyond the tenth are not tested: that would be a fourth look."""


class Findings(NamedTuple):
    """The outcome of all looks."""

    p: Float[np.ndarray, " tasks"]
    """Of the permutation tests, adjusted over tasks and looks; NaN where nothing can be tested."""
    least_p: Float[np.ndarray, " tasks"]
    """The smallest p that the last look can give, adjusted over looks only."""
    separates: Bool[np.ndarray, " tasks"]
    """Whether p is significant and the farthest means are a margin apart, at some look."""
    apart: Bool[np.ndarray, "tasks pairs"]
    """Pairs that differ, in the order of ``numpy.triu_indices(cells, 1)``; none where the task does not separate."""
    within: Bool[np.ndarray, "tasks pairs"]
    """Pairs whose difference is smaller than the margin, for certain; each pair by itself."""
    outlier: Int[np.ndarray, " tasks"]
    """The cell that is farthest from the mean of all at the last look."""
    p_outlier: Float[np.ndarray, " tasks"]
    """Of the permutation test of the outlier, adjusted over looks."""
    is_paired: bool
    """Whether the last look compares run with run of one seed."""


def looks_for(num_seeds: int) -> tuple[Look, ...]:
    """The looks at a ladder of which some cell has a number of seeds: the last may be incomplete.

    Before any seed is added nothing says that more looks follow, and the only one has all of the error.

    >>> [look.num_seeds for look in looks_for(4)], looks_for(3) == ONCE
    ([3, 5], True)
    """
    before = (0, *(look.num_seeds or 0 for look in LOOKS[:-1]))
    found = tuple(look for look, fewer in zip(LOOKS, before, strict=True) if num_seeds > fewer)
    return found if len(found) > 1 else ONCE


def share_at(num_seeds: int) -> float:
    """Of the error of all looks at a ladder, the share of the look at a number of seeds."""
    return looks_for(num_seeds)[-1].share


def examine(
    scores: Scores,
    margins: Float[np.ndarray, " tasks"],
    looks: Sequence[Look],
    has_run: Bool[np.ndarray, "tasks cells seeds"],
) -> Findings:
    """Test tasks and pairs at each look.

    A pair is apart if its task separates, its moderated t test is significant after Holm over the pairs of the task,
    and its means are a margin apart. It is within the margin if both one-sided t tests against the margin are
    significant, without a correction for the number of pairs. A pair that is apart or within stays so. After the first
    look, a pair is tested only if both cells have all runs of the look.

    Args:
        scores: One number a run; NaN where one is missing or failed.
        margins: Smallest difference of two means that counts, of each task.
        looks: The first ones of ``LOOKS``, or ``ONCE``.
        has_run: Whether a run is there, failed ones included.

    Source: Maurer & Bretz (2013) for Holm's procedure over several looks; Schuirmann (1987) for two one-sided tests.
    """
    first, second = np.triu_indices(scores.shape[1], 1)
    limits = margins[:, None]
    p = np.full(len(scores), math.nan)
    separates = np.zeros(len(scores), dtype=bool)
    apart = within = np.zeros((len(scores), len(first)), dtype=bool)
    for look in looks:
        own = scores[:, :, : look.num_seeds]
        is_paired = shares_seeds(own)
        tests = [task_test(of_task, is_paired=is_paired, share=look.share) for of_task in own]
        adjusted = benjamini_hochberg(np.array([test.p for test in tests], dtype=float))
        p = np.fmin(p, adjusted)
        means = _means(own)
        farthest = np.fmax.reduce(means, axis=1, initial=math.nan) - np.fmin.reduce(means, axis=1, initial=math.nan)
        separates = separates | ((adjusted < SIGNIFICANCE) & (farthest >= margins - TOLERANCE))

        pairs = pair_tests(own, is_paired=is_paired)
        is_whole = has_run[:, :, : look.num_seeds].sum(axis=2) == look.num_seeds
        is_tested = (is_whole[:, first] & is_whole[:, second]) | (look is looks[0])
        is_open = is_tested & ~(apart | within)
        # Pairs that are apart give their part of the error to the others; those that are within keep it.
        p_of_pairs = np.where(is_open | np.isnan(pairs.p), np.minimum(pairs.p / look.share, 1.0), np.where(apart, 0, 1))
        is_significant = np.array([holm(of_task) for of_task in p_of_pairs]).reshape(apart.shape) < SIGNIFICANCE
        distance = np.abs(means[:, first] - means[:, second])
        now_apart = is_open & separates[:, None] & is_significant & (distance >= limits - TOLERANCE)
        reach = special.stdtrit(pairs.dof, 1 - SIGNIFICANCE * look.share) * pairs.error
        # Where no run of a task scatters, nothing is known of how far others might lie apart.
        now_within = is_open & ~now_apart & (reach > 0) & (np.abs(pairs.difference) + reach < limits)
        apart, within = apart | now_apart, within | now_within
    return Findings(
        p=p,
        least_p=np.array([test.least_p for test in tests], dtype=float),
        separates=separates,
        apart=apart,
        within=within,
        outlier=np.array([test.outlier for test in tests], dtype=int),
        p_outlier=np.array([test.p_outlier for test in tests], dtype=float),
        is_paired=is_paired,
    )


def task_test(scores: Float[np.ndarray, "cells seeds"], *, is_paired: bool, share: float = 1.0) -> Permutation:
    """The permutation test of one task, with p values divided by the share of its look.

    Returns:
        NaN below two cells with a run, or if none has two.
    """
    num_runs = (~np.isnan(scores)).sum(axis=1)
    (scored,) = np.nonzero(num_runs)
    if len(scored) < 2 or num_runs.max() < 2:
        return Permutation(math.nan, math.nan, 0, math.nan)
    found = permutation_test(scores[scored], is_paired=is_paired)
    return Permutation(
        p=min(1.0, found.p / share),
        least_p=min(1.0, found.least_p / share),
        outlier=int(scored[found.outlier]),
        p_outlier=min(1.0, found.p_outlier / share),
    )


def _means(scores: Scores) -> Float[np.ndarray, "tasks cells"]:
    num_runs = (~np.isnan(scores)).sum(axis=2)
    means: Float[np.ndarray, "tasks cells"] = np.where(
        num_runs > 0, np.nansum(scores, axis=2) / np.maximum(num_runs, 1), math.nan
    )
    return means
