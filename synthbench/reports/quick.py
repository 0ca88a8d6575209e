"""The arithmetic of a first verdict: one run a task of a new mechanism, beside the runs of others on the same tasks.

All scores are heights over rungs, in [0, 1]. Each category weighs the same, and each task of a category.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from synthbench.reports.aggregates import PerTask, Rank, Skills, balanced
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE

RANK_CONFIDENCE = 0.9
NUM_DRAWS = 2000
"""Bootstrap samples behind a rank interval."""
NUM_STEPS = 1000
"""Steps into which the sum of all differences is divided to count the changes of sign exactly."""

Decision = Literal["keep", "discard", "undecided"]
PerRival = Float[np.ndarray, " mechanisms"]
Differences = Float[np.ndarray, "mechanisms tasks"]


def level_of(query: int) -> float:
    """The part of ``SIGNIFICANCE`` that a query may spend; those of all queries, however many, add up to it.

    Args:
        query: Its number among those against one incumbent, from 1.

    >>> round(level_of(1), 4), round(level_of(50), 7)
    (0.0304, 1.22e-05)
    """
    return SIGNIFICANCE * 6 / (math.pi * query) ** 2


def least_p(num_tasks: int) -> float:
    """The p value of a mechanism that is better on every task: one of all changes of sign."""
    return 0.5**num_tasks


def sign_flip_p(differences: PerTask, categories: Sequence[str]) -> tuple[float, float]:
    """Chance of a balanced mean difference as high as this, if each task's could as well have the opposite sign.

    All ``2 ** tasks`` changes of sign are counted, so that p can be as small as the tasks allow, where draws would
    have to be very many. For that the weighted differences are rounded to 1 / ``NUM_STEPS`` of the sum of their sizes;
    of the rounded ones p is exact.

    Two runs of one mechanism are as likely to differ by d as by -d, however they scatter, so that p keeps its level
    for one run against one run. Against the mean of several it does not: where one run in ten climbs ten rungs
    higher on a sixth of the tasks, p is below .03 for 5 % of mechanisms that are no worse.

    Args:
        differences: Of each task, one run less one run; positive where the mechanism is better.
        categories: Of the tasks.

    Returns:
        The one-sided p values of being better and of being worse; both are 1 where nothing differs.

    Source: Fisher (1935), section 21.

    >>> sign_flip_p(np.array([0.25, 0.5, 0.125]), ["recall"] * 3)
    (0.125, 1.0)
    """
    weighted = balanced(categories) * differences
    total = float(np.abs(weighted).sum())
    if total <= TOLERANCE:
        return 1.0, 1.0
    steps = np.rint(weighted / total * NUM_STEPS).astype(int)
    sizes = np.abs(steps)
    half = int(sizes.sum())
    chances = np.zeros(2 * half + 1)  # of the sums from -half to half
    chances[half] = 1.0
    for size in sizes[sizes > 0].tolist():
        shifted = np.zeros_like(chances)
        shifted[size:] = chances[:-size]
        shifted[:-size] += chances[size:]
        chances = shifted / 2
    at = half + int(steps.sum())
    return float(chances[at:].sum()), float(chances[: at + 1].sum())


def decide(p_better: float, p_worse: float, query: int) -> Decision:
    """``keep`` what is better at the level of its query, ``discard`` what is worse.

    Both errors have the same level, each of its own: of all queries against one incumbent the chance to keep one that
    is no better is at most ``SIGNIFICANCE``, and so is the chance to discard one that is no worse.

    Args:
        p_better: One-sided p value of being better.
        p_worse: One-sided p value of being worse.
        query: Its number among those against one incumbent, from 1.
    """
    if p_better <= level_of(query):
        return "keep"
    return "discard" if p_worse <= level_of(query) else "undecided"


def rank_interval(
    scores: PerTask, rivals: Skills, categories: Sequence[str], full_sizes: Mapping[str, int], num_seeds: int
) -> Rank:
    """The rank that a mechanism will have among others once all tasks and seeds of the suite are run.

    A mechanism ranks below each that is better for certain and above each that is worse for certain. Certain is a
    difference whose interval leaves out 0; the intervals hold for all pairs at once, with ``RANK_CONFIDENCE``. Two
    things make a difference uncertain. The tasks that are yet to be run: the differences on those that were run are
    resampled, around the mean of each category and together for all pairs. The seeds that are yet to be run: residuals
    of the others' seeds on the same task are drawn. The others are compared by the mean of their seeds, which has less
    noise than one seed and is what the full suite compares; runs that share a seed have hardly more in common than
    runs that do not.

    Args:
        scores: One run of the mechanism on each task.
        rivals: Runs of the others on the same tasks, NaN where one has fewer seeds; each has one at least.
        categories: Of the tasks.
        full_sizes: Number of tasks of each category in the suite.
        num_seeds: Seeds of the suite.

    Returns:
        The rank, 1 for the best; the ends are those of all ranks where too little is known for an interval: no rival
        has two seeds, or fewer tasks than categories + 2 say how other tasks would scatter.

    Source: Efron & Tibshirani (1993), section 12.5, the bootstrap-t; Cochran (1977), sections 2.6 and 5.3, for tasks
    that are part of a finite number in strata; Mogstad et al. (2024) for ranks from simultaneous intervals.
    """
    differences = scores - np.nanmean(rivals, axis=2)
    lead = differences @ balanced(categories)
    reach = _reach(differences, rivals, categories, full_sizes, num_seeds)
    num_above, num_below = int((lead < -reach - TOLERANCE).sum()), int((lead > reach + TOLERANCE).sum())
    return Rank(1 + int((lead < -TOLERANCE).sum()), 1 + num_above, 1 + len(rivals) - num_below)


def _reach(
    differences: Differences, rivals: Skills, categories: Sequence[str], full_sizes: Mapping[str, int], num_seeds: int
) -> PerRival:
    """How far the mean differences of the full suite may be from these, all at once; infinite where that is unknown."""
    weights = balanced(categories)
    run = np.array([categories.count(category) / full_sizes[category] for category in categories])
    # A category's mean of n of N tasks and one of S seeds has the variance ((1 - f) tasks + f (1 - 1 / S) seeds) / n
    # around that of all, where f is n / N, and the scatter of tasks includes that of their seeds.
    of_tasks, of_seeds = weights * np.sqrt(1 - run), weights * np.sqrt(run * (1 - 1 / num_seeds))
    noise = _seed_residuals(rivals)
    dof = len(categories) - len(set(categories))
    if (of_seeds.any() and noise is None) or (of_tasks.any() and dof < 2):
        return np.full(len(rivals), math.inf)
    rng = np.random.Generator(np.random.Philox(0))
    variance = np.zeros(len(rivals))
    drawn = np.zeros((NUM_DRAWS, len(rivals)))
    drawn_variance = np.zeros((NUM_DRAWS, len(rivals)))
    if of_tasks.any():
        means = _means_of_categories(categories)
        residuals = differences - differences @ means
        variance += (residuals**2).sum(axis=1) / dof * (of_tasks**2).sum()
        # Residuals around a mean of n are too small by this; a single task has none.
        sizes = np.array([categories.count(category) for category in categories])
        pool = (residuals * np.sqrt(sizes / np.maximum(sizes - 1, 1)))[:, sizes > 1]
        resampled = pool[:, rng.integers(pool.shape[1], size=(NUM_DRAWS, len(categories)))]
        drawn += (resampled @ of_tasks).T
        drawn_variance += (((resampled - resampled @ means) ** 2).sum(axis=2) / dof * (of_tasks**2).sum()).T
    if noise is not None and of_seeds.any():
        of_run = float(of_seeds**2 @ [(own**2).mean() for own in noise])
        variance += of_run
        drawn_variance += of_run
        drawn += (np.stack([rng.choice(own, NUM_DRAWS) for own in noise], axis=1) @ of_seeds)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        farthest = np.where(np.abs(drawn) <= TOLERANCE, 0.0, np.abs(drawn) / np.sqrt(drawn_variance)).max(axis=1)
        reach: PerRival = np.quantile(farthest, RANK_CONFIDENCE, method="higher") * np.sqrt(variance)
    return reach


def _means_of_categories(categories: Sequence[str]) -> Float[np.ndarray, "tasks tasks"]:
    """What takes one number a task to the mean of the task's category."""
    is_same = np.array([[one == other for other in categories] for one in categories], dtype=float)
    means: Float[np.ndarray, "tasks tasks"] = is_same / is_same.sum(axis=0)
    return means


def _seed_residuals(rivals: Skills) -> list[Float[np.ndarray, " runs"]] | None:
    """How far runs are from the mean of their cell, by task; None unless each task has a cell of two runs."""
    num_runs = (~np.isnan(rivals)).sum(axis=2, keepdims=True)
    residuals = rivals - np.nanmean(rivals, axis=2, keepdims=True)
    # Around a mean of n runs they are too small by this.
    residuals = np.where(num_runs > 1, residuals * np.sqrt(num_runs / np.maximum(num_runs - 1, 1)), math.nan)
    of_tasks = [own[~np.isnan(own)] for own in np.moveaxis(residuals, 1, 0).reshape(rivals.shape[1], -1)]
    return of_tasks if all(map(len, of_tasks)) else None
