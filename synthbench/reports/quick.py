"""The arithmetic of a first verdict: one run per task of a new mechanism, beside the runs of others on the same tasks.

All scores are heights over rungs, in [0, 1]. All categories weigh the same, and so do the tasks of one.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from synthbench.reports.aggregates import PerTask, Rank, balanced
from synthbench.reports.statistics import SIGNIFICANCE, TOLERANCE

RANK_CONFIDENCE = 0.9
NUM_STEPS = 1000
"""Steps into which the sum of all differences is divided to count the changes of sign."""

Decision = Literal["keep", "discard", "undecided"]


def level_of(query: int) -> float:
    """The part of ``SIGNIFICANCE`` that a query may spend; the parts of all queries, however many, add up to it.

    Queries against one incumbent are numbered from 1.

    >>> round(level_of(1), 4), round(level_of(50), 7)
    (0.0304, 1.22e-05)
    """
    return SIGNIFICANCE * 6 / (math.pi * query) ** 2


def least_p(num_tasks: int) -> float:
    """The p value of a mechanism that is better on every task: one of all changes of sign."""
    return 0.5**num_tasks


def sign_flip_p(differences: PerTask, categories: Sequence[str]) -> tuple[float, float]:
    """Chance of a balanced mean difference as high as this, if the difference on each task could have either sign.

    All ``2 ** tasks`` changes of sign are counted, so p can be as small as the tasks allow; sampling would need very
    many draws. For the count, the weighted differences are rounded to 1 / ``NUM_STEPS`` of the sum of their sizes.

    Two runs of one mechanism are as likely to differ by d as by -d, however they scatter, so p keeps its level for one
    run against one run. Against the mean of several runs it does not: if one run in ten climbs ten rungs higher on a
    sixth of the tasks, p is below .03 for 5 % of mechanisms that are no worse.

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
    """``keep`` what is better at the level of its query, ``discard`` what is worse; both p values are one-sided.

    Over all queries against one incumbent, the chance to ever keep a mechanism that is no better is at most
    ``SIGNIFICANCE``, and so is the chance to ever discard one that is no worse.
    """
    if p_better <= level_of(query):
        return "keep"
    return "discard" if p_worse <= level_of(query) else "undecided"


def rank_interval(
    score: float, quick: Float[np.ndarray, "mechanisms seeds"], full: Float[np.ndarray, " mechanisms"]
) -> Rank:
    """The rank that a mechanism will have among others once all tasks and seeds of the suite are run.

    The full results of the others are known, so only one number is uncertain: how much the mechanism's mean over the
    full suite will differ from the mean of its quick runs. These differences are known for the others, one for each
    seed, and the mechanism is assumed to be one more of their kind. Its full mean is predicted from theirs, with
    ``RANK_CONFIDENCE``, and its rank follows.

    Args:
        score: Mean of one run of the mechanism on each quick task, in [0, 1]; each category weighs the same.
        quick: The same mean of the others, of each seed.
        full: Means of the others over all tasks and seeds of the suite.

    Returns:
        The rank, 1 for the best; with fewer than two others the ends are those of all ranks.

    Source: Hahn & Meeker (1991), section 4.7, the prediction interval for one more observation. The degrees of freedom
    are those of the mechanisms, since the seeds of one are not independent.

    >>> rank_interval(0.5, np.array([[0.2, 0.22], [0.4, 0.42], [0.61, 0.6]]), np.array([0.21, 0.41, 0.6]))
    Rank(value=2, low=2, high=2)
    """
    changes = full[:, None] - quick
    dof = len(full) - 1
    if dof < 1:
        return Rank(1 + int((full > score).sum()), 1, 1 + len(full))
    variance = ((changes - changes.mean()) ** 2).mean() * len(full) / dof
    predicted = score + changes.mean()
    reach = float(stdtrit(dof, (1 + RANK_CONFIDENCE) / 2)) * math.sqrt(variance * (1 + 1 / len(full))) + TOLERANCE
    above, high, low = ((full > bound).sum() for bound in (predicted, predicted - reach, predicted + reach))
    return Rank(1 + int(above), 1 + int(low), 1 + int(high))
