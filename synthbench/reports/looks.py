"""Tests of which tasks separate mechanisms and which pairs differ, made once or at several looks as seeds are added.

On a ladder, all mechanisms have three seeds; pairs that these do not decide get five, then ten. Testing at 5 % at each
look would err in more than 5 % of the cases. So each look spends a share of the 5 %, in proportion to its new seeds.
By Bonferroni's inequality, all looks together then err no more often than a single test, whatever was decided on the
way. A p value is divided by the share of its look, and the smallest over the looks counts. A ladder to which no seed
was added is tested once.
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
    p_of_pairs,
    pair_tests,
    permutation_test,
    shares_seeds,
)


class Look(NamedTuple):
    """A test of the runs that exist at some point."""

    num_seeds: int | None
    """Number of first seeds of each cell that are tested; None: all."""
    share: float
    """Fraction of the error of all looks that this one may spend."""


ONCE = (Look(None, 1.0),)
"""A single look, when all runs are done before anything is tested."""
LOOKS = (Look(3, 0.3), Look(5, 0.2), Look(10, 0.5))
"""The looks at a ladder. Seeds beyond the tenth are not tested: that would be a fourth look."""


class Findings(NamedTuple):
    """The outcome of all looks."""

    p: Float[np.ndarray, " tasks"]
    """P values of the permutation tests, adjusted over tasks and looks; NaN if nothing can be tested."""
    least_p: Float[np.ndarray, " tasks"]
    """The smallest p that the last look can give, adjusted over looks only."""
    separates: Bool[np.ndarray, " tasks"]
    """True if p is significant and the farthest means are a margin apart, at some look."""
    tested: Bool[np.ndarray, "tasks pairs"]
    """Pairs for which there is a t test, in the order of ``numpy.triu_indices(cells, 1)``."""
    differs: Bool[np.ndarray, "tasks pairs"]
    """Pairs that differ by a test of the pair alone, whatever the other pairs and by however little."""
    apart: Bool[np.ndarray, "tasks pairs"]
    """Pairs that differ among all pairs of their task, by a margin; none if the task does not separate."""
    within: Bool[np.ndarray, "tasks pairs"]
    """Pairs whose difference is shown to be smaller than the margin, each pair by itself."""
    outlier: Int[np.ndarray, " tasks"]
    """The cell that is farthest from the mean of all at the last look."""
    p_outlier: Float[np.ndarray, " tasks"]
    """P value of the permutation test of the outlier, adjusted over looks."""


def looks_for(num_seeds: int) -> tuple[Look, ...]:
    """Return the looks at a ladder whose largest cell has a number of seeds; the last look may be incomplete.

    Until a seed is added, there is a single look, which may spend the whole error.

    >>> [look.num_seeds for look in looks_for(4)], looks_for(3) == ONCE
    ([3, 5], True)
    """
    before = (0, *(look.num_seeds or 0 for look in LOOKS[:-1]))
    started = tuple(look for look, fewer in zip(LOOKS, before, strict=True) if num_seeds > fewer)
    return started if len(started) > 1 else ONCE


def share_at(num_seeds: int) -> float:
    """Return the share of the error that the look at a number of seeds may spend on a ladder."""
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

    For two cells, the task's p is that of the t test, Holm over the tasks, as in :mod:`synthbench.reports.compare`:
    three seeds each can be shuffled in twenty ways only.

    Args:
        scores: NaN where a run is missing or failed.
        margins: Smallest difference of two means that counts.
        looks: The first few of ``LOOKS``, or ``ONCE``.
        has_run: Whether there is a run, failed ones included.

    Source: Maurer & Bretz (2013) for Holm's procedure over several looks; Schuirmann (1987) for two one-sided tests.
    """
    first, second = np.triu_indices(scores.shape[1], 1)
    limits = margins[:, None]
    p = np.full(len(scores), math.nan)
    separates = np.zeros(len(scores), dtype=bool)
    tested = differs = apart = within = np.zeros((len(scores), len(first)), dtype=bool)
    has_one_pair = len(first) == 1
    for look in looks:
        seen = scores[:, :, : look.num_seeds]
        is_paired = shares_seeds(seen)
        tests = [task_test(of_task, is_paired=is_paired, share=look.share) for of_task in seen]
        pairs = pair_tests(seen, is_paired=is_paired)
        num_runs = (~np.isnan(seen)).sum(axis=2)
        if has_one_pair:
            of_the_pair = p_of_pairs(pairs, [(one, other) for one, other in num_runs.tolist()], is_paired=is_paired)
            adjusted = holm(np.minimum(of_the_pair / look.share, 1.0))
        else:
            adjusted = benjamini_hochberg(np.array([test.p for test in tests], dtype=float))
        p = np.fmin(p, adjusted)
        means = np.where(num_runs > 0, np.nansum(seen, axis=2) / np.maximum(num_runs, 1), math.nan)
        farthest = np.fmax.reduce(means, axis=1, initial=math.nan) - np.fmin.reduce(means, axis=1, initial=math.nan)
        separates = separates | ((adjusted < SIGNIFICANCE) & (farthest >= margins - TOLERANCE))

        is_whole = has_run[:, :, : look.num_seeds].sum(axis=2) == look.num_seeds
        is_tested = (is_whole[:, first] & is_whole[:, second]) | (look is looks[0])
        tested = tested | (is_tested & ~np.isnan(pairs.p))
        differs = differs | (is_tested & (pairs.p / look.share < SIGNIFICANCE))
        is_open = is_tested & ~(apart | within)
        # In Holm's procedure, pairs that are apart leave their part of the error to the others; pairs within keep it.
        p_open = np.where(is_open | np.isnan(pairs.p), np.minimum(pairs.p / look.share, 1.0), np.where(apart, 0, 1))
        is_significant = np.array([holm(of_task) for of_task in p_open]).reshape(apart.shape) < SIGNIFICANCE
        distance = np.abs(means[:, first] - means[:, second])
        now_apart = is_open & separates[:, None] & is_significant & (distance >= limits - TOLERANCE)
        reach = special.stdtrit(pairs.dof, 1 - SIGNIFICANCE * look.share) * pairs.error
        # If the runs of a task do not scatter at all, nothing is known about how far apart others might be.
        now_within = is_open & ~now_apart & (reach > 0) & (np.abs(pairs.difference) + reach < limits)
        apart, within = apart | now_apart, within | now_within
    return Findings(
        p=p,
        least_p=np.array([0.0 if has_one_pair else test.least_p for test in tests], dtype=float),
        separates=separates,
        tested=tested,
        differs=differs,
        apart=apart,
        within=within,
        outlier=np.array([test.outlier for test in tests], dtype=int),
        p_outlier=np.array([test.p_outlier for test in tests], dtype=float),
    )


def task_test(scores: Float[np.ndarray, "cells seeds"], *, is_paired: bool, share: float = 1.0) -> Permutation:
    """Test one task by permutation, with p values divided by the share of its look.

    If some cells have a single run, those with several are also tested among themselves, since many single runs hide
    their differences. The smaller p counts, doubled (Bonferroni). Every p is NaN below two cells with a run, or if no
    cell has two runs.
    """
    num_runs = (~np.isnan(scores)).sum(axis=1)
    scored, several = np.flatnonzero(num_runs), np.flatnonzero(num_runs > 1)
    if len(scored) < 2 or not len(several):
        return Permutation(math.nan, math.nan, 0, math.nan)
    sets = [scored, several] if 1 < len(several) < len(scored) else [scored]
    tests = [(permutation_test(scores[cells], is_paired=is_paired), cells) for cells in sets]
    test, cells = min(tests, key=lambda one: one[0].p)
    return Permutation(
        p=min(1.0, test.p * len(tests) / share),
        least_p=min(1.0, min(one.least_p for one, _cells in tests) * len(tests) / share),
        outlier=int(cells[test.outlier]),
        p_outlier=min(1.0, test.p_outlier * len(tests) / share),
    )
