"""Tests of whether mechanisms differ on a task and which pairs differ, repeated as seeds are added (interim analyses).

On tasks with levels (a ladder), all mechanisms start with three seeds. Pairs of mechanisms that are still undecided get
five seeds, then ten. Testing at 5 % at each analysis would give more than 5 % false positives in total. So each
analysis spends a part of the 5 % error rate, in proportion to its new seeds. By Bonferroni's inequality, all analyses
together then have at most 5 % false positives, whatever was decided at earlier analyses. The p value of each analysis
is divided by its fraction of the error rate, and the smallest quotient is reported. If no seeds are added, there is a
single test.
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


class InterimAnalysis(NamedTuple):
    """An interim analysis: tests on the first ``num_seeds`` seeds of each mechanism; seeds may be added afterwards."""

    num_seeds: int | None
    """Number of seeds of each cell that are tested, counted from the first; None for all seeds."""
    share: float
    """Fraction of the total error rate that this analysis may spend."""


ONCE = (InterimAnalysis(None, 1.0),)
"""A single analysis, for runs that were all done before any test."""
ANALYSES = (InterimAnalysis(3, 0.3), InterimAnalysis(5, 0.2), InterimAnalysis(10, 0.5))
"""The analyses of a ladder, at 3, 5 and 10 seeds. Seeds after the tenth are not tested."""


class Findings(NamedTuple):
    """The results of tests for differences after all interim analyses (tests repeated as seeds are added)."""

    p: Float[np.ndarray, " tasks"]
    """P value of each task's test, adjusted for all tasks and analyses; NaN if nothing can be tested."""
    least_p: Float[np.ndarray, " tasks"]
    """The smallest p value that was possible at the last analysis, adjusted for interim analyses but not for other
    tasks."""
    has_differences: Bool[np.ndarray, " tasks"]
    """True if, at some analysis, p is significant and the highest and lowest means are at least the margin apart."""
    alike: Bool[np.ndarray, "tasks pairs"]
    """True for pairs that were tested and whose t test is not significant, without adjustment for the other pairs.

    Pairs are in the order of ``numpy.triu_indices(cells, 1)``.
    """
    apart: Bool[np.ndarray, "tasks pairs"]
    """True for pairs whose difference is at least the margin, and significant after Holm's correction over the pairs.

    No pair is apart if mechanisms do not differ on the task.
    """
    within: Bool[np.ndarray, "tasks pairs"]
    """True for pairs whose difference is shown to be smaller than the margin, without adjustment for other pairs."""
    outlier: Int[np.ndarray, " tasks"]
    """Index of the cell whose mean is farthest from the mean of all cells, at the last analysis."""
    p_outlier: Float[np.ndarray, " tasks"]
    """P value of the outlier in a permutation test, adjusted for analyses."""


def analyses_for(num_seeds: int) -> tuple[InterimAnalysis, ...]:
    """Return the interim analyses that have begun, given the number of seeds so far.

    In an interim analysis, mechanisms are tested before all seeds have run. ``num_seeds`` is the number of seeds of the
    mechanism with the most seeds. With up to three seeds, the result is a single analysis, which may use the whole
    error rate.

    >>> [analysis.num_seeds for analysis in analyses_for(4)], analyses_for(3) == ONCE
    ([3, 5], True)
    """
    before = (0, *(analysis.num_seeds or 0 for analysis in ANALYSES[:-1]))
    started = tuple(analysis for analysis, fewer in zip(ANALYSES, before, strict=True) if num_seeds > fewer)
    return started if len(started) > 1 else ONCE


def share_at(num_seeds: int) -> float:
    """Return the fraction of the 5 % error rate that the latest interim analysis at ``num_seeds`` seeds may spend."""
    return analyses_for(num_seeds)[-1].share


def examine(
    scores: Scores,
    margins: Float[np.ndarray, " tasks"],
    analyses: Sequence[InterimAnalysis],
    has_run: Bool[np.ndarray, "tasks cells seeds"],
) -> Findings:
    """Test on each task whether mechanisms differ and which pairs differ, in each interim analysis so far.

    In an interim analysis, the runs so far are tested before more seeds are added. A cell is one mechanism on one task.
    A pair of cells is *apart* if three conditions hold: its task shows differences, its means differ by at least the
    margin, and its t test is significant. The t test is moderated (variances are shrunk towards the variance of the
    task), with Holm's correction over the task's pairs. A pair is *within* the margin if both one-sided t tests against
    the margin are significant, without a correction for the number of pairs. A decision of an earlier analysis is never
    changed. After the first analysis, a pair is tested only if both cells have all seeds of the analysis.

    If there are only two mechanisms, the p value of a task comes from the t test, with Holm's correction over the
    tasks, as in :mod:`synthbench.reports.compare`. A permutation test would be too coarse.

    Args:
        scores: Scores of all runs; NaN where a run is missing or failed.
        margins: Smallest relevant difference of two means, for each task.
        analyses: The interim analyses so far: the first entries of ``ANALYSES``, or ``ONCE`` for a single analysis.
        has_run: True where there is a run, even a failed one.

    Source: Maurer & Bretz (2013) for Holm's procedure over several analyses; Schuirmann (1987) for two one-sided tests.
    """
    first, second = np.triu_indices(scores.shape[1], 1)
    limits = margins[:, None]
    p = np.full(len(scores), math.nan)
    has_differences = np.zeros(len(scores), dtype=bool)
    tested = differs = apart = within = np.zeros((len(scores), len(first)), dtype=bool)
    has_one_pair = len(first) == 1
    for analysis in analyses:
        seen = scores[:, :, : analysis.num_seeds]
        is_paired = shares_seeds(seen)
        tests = [task_test(of_task, is_paired=is_paired, share=analysis.share) for of_task in seen]
        pairs = pair_tests(seen, is_paired=is_paired)
        num_runs = (~np.isnan(seen)).sum(axis=2)
        if has_one_pair:
            of_the_pair = p_of_pairs(pairs, num_runs.tolist(), is_paired=is_paired)
            adjusted = holm(np.minimum(of_the_pair / analysis.share, 1.0))
        else:
            adjusted = benjamini_hochberg(np.array([test.p for test in tests], dtype=float))
        p = np.fmin(p, adjusted)
        means = np.where(num_runs > 0, np.nansum(seen, axis=2) / np.maximum(num_runs, 1), math.nan)
        farthest = np.fmax.reduce(means, axis=1, initial=math.nan) - np.fmin.reduce(means, axis=1, initial=math.nan)
        has_differences = has_differences | ((adjusted < SIGNIFICANCE) & (farthest >= margins - TOLERANCE))

        is_whole = has_run[:, :, : analysis.num_seeds].sum(axis=2) == analysis.num_seeds
        is_tested = (is_whole[:, first] & is_whole[:, second]) | (analysis is analyses[0])
        tested = tested | (is_tested & ~np.isnan(pairs.p))
        differs = differs | (is_tested & (pairs.p / analysis.share < SIGNIFICANCE))
        is_open = is_tested & ~(apart | within)
        # In Holm's procedure, pairs that are apart pass their part of the error rate on; pairs within keep it.
        p_open = np.where(is_open | np.isnan(pairs.p), np.minimum(pairs.p / analysis.share, 1.0), np.where(apart, 0, 1))
        is_significant = np.array([holm(of_task) for of_task in p_open]).reshape(apart.shape) < SIGNIFICANCE
        distance = np.abs(means[:, first] - means[:, second])
        now_apart = is_open & has_differences[:, None] & is_significant & (distance >= limits - TOLERANCE)
        reach = special.stdtrit(pairs.dof, 1 - SIGNIFICANCE * analysis.share) * pairs.error
        # If the runs of a task do not vary at all, nothing is known about how far apart further runs might be.
        now_within = is_open & ~now_apart & (reach > 0) & (np.abs(pairs.difference) + reach < limits)
        apart, within = apart | now_apart, within | now_within
    return Findings(
        p=p,
        least_p=np.array([0.0 if has_one_pair else test.least_p for test in tests], dtype=float),
        has_differences=has_differences,
        alike=tested & ~differs,
        apart=apart,
        within=within,
        outlier=np.array([test.outlier for test in tests], dtype=int),
        p_outlier=np.array([test.p_outlier for test in tests], dtype=float),
    )


def task_test(scores: Float[np.ndarray, "cells seeds"], *, is_paired: bool, share: float = 1.0) -> Permutation:
    """Test by permutation whether mechanisms differ on one task; the p values are divided by ``share``.

    ``share`` is the fraction of the total error rate (5 %) that this test may use. If some mechanisms have a single
    run, a second test is made without them. The result is then twice the smaller p value of the two tests (Bonferroni).
    All p values are NaN if fewer than two mechanisms have a run, or if no mechanism has two runs.
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
