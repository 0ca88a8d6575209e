"""Statistics over many tasks, as a leaderboard prints them: one number a mechanism, with an interval.

All of them take skills as an array [mechanisms, tasks, seeds] without gaps: a run that failed counts as 0, the floor.
Seeds are paired: seed s of all mechanisms saw the same sequences, so resamples are drawn once for all mechanisms.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from synthbench.reports.grid import CONFIDENCE
from synthbench.reports.statistics import TOLERANCE

Skills = Float[np.ndarray, "mechanisms tasks seeds"]
Runs = Float[np.ndarray, "mechanisms runs"]
"""Skills of all tasks and seeds taken together."""
Counts = Float[np.ndarray, "resamples runs"]
"""How often each run is in each resample."""
Statistic = Callable[[Runs, Counts], Float[np.ndarray, "resamples mechanisms"]]

_AT_ONCE = 2**20
"""Numbers of counts that are held at once."""


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


class Rank(NamedTuple):
    """The rank of a mechanism, 1 for the best; equal ones share the better rank."""

    value: int
    low: int
    """Best rank in the interval."""
    high: int
    """Worst rank in the interval."""
    p_first: float
    """Share of resamples in which nothing ranks better."""


def mean(runs: Runs, counts: Counts) -> Float[np.ndarray, "resamples mechanisms"]:
    """Mean over the runs of each resample."""
    averages: Float[np.ndarray, "resamples mechanisms"] = counts @ runs.T / counts.sum(axis=1, keepdims=True)
    return averages


def interquartile_mean(runs: Runs, counts: Counts) -> Float[np.ndarray, "resamples mechanisms"]:
    """Mean of the middle half of the runs of each resample; of n runs n // 4 are left out at both ends.

    Source: Agarwal et al. (2021), section 4.3.
    """
    of_run = np.ascontiguousarray(counts.T)
    total = of_run.sum(axis=0)
    first = total // 4
    last = total - first
    order = np.argsort(runs, axis=1, kind="stable")
    ascending = np.take_along_axis(runs, order, axis=1)
    # The sum over the middle half by parts: run after run upwards, how many of it are at or below that run.
    sums = ascending[:, -1:] * last - ascending[:, :1] * first
    below, of_middle = np.zeros_like(sums), np.empty_like(sums)
    for own, step in zip(order.T, np.diff(ascending).T, strict=False):
        below += of_run[own]
        np.clip(below, first, last, out=of_middle)
        of_middle *= step[:, None]
        sums -= of_middle
    middle: Float[np.ndarray, "resamples mechanisms"] = (sums / (last - first)).T
    return middle


def bootstrap(
    skills: Skills, statistic: Statistic, rng: np.random.Generator, *, num_resamples: int = 2000, over_tasks: bool
) -> Float[np.ndarray, "resamples mechanisms"]:
    """The statistic of resampled skills: seeds are drawn with replacement within each task, so strata stay whole.

    Args:
        skills: One number a run.
        statistic: Reduces the runs of every mechanism to one number.
        rng: Draws the resamples.
        num_resamples: How many.
        over_tasks: Whether tasks are drawn with replacement too: then the interval speaks of tasks like these, not of
            these tasks.

    Source: Agarwal et al. (2021), section 4.1, the stratified bootstrap.
    """
    num_mechanisms, num_tasks, num_seeds = skills.shape
    runs = skills.reshape(num_mechanisms, -1)
    num_runs = runs.shape[1]
    at_once = max(1, _AT_ONCE // num_runs)
    # A stream for each, so that what is drawn does not depend on how many resamples are held at once.
    of_tasks, of_seeds = rng.spawn(2)
    values = []
    for start in range(0, num_resamples, at_once):
        size = min(at_once, num_resamples - start)
        tasks = (
            of_tasks.integers(num_tasks, size=(size, num_tasks))
            if over_tasks
            else np.broadcast_to(np.arange(num_tasks), (size, num_tasks))
        )
        seeds = of_seeds.integers(num_seeds, size=(size, num_tasks, num_seeds))
        drawn = (np.arange(size)[:, None, None] * num_tasks + tasks[:, :, None]) * num_seeds + seeds
        counts = np.bincount(drawn.ravel(), minlength=size * num_runs).reshape(size, num_runs)
        values.append(statistic(runs, counts.astype(np.float64)))
    resamples: Float[np.ndarray, "resamples mechanisms"] = np.concatenate(values)
    return resamples


def intervals(
    skills: Skills,
    statistic: Statistic,
    rng: np.random.Generator,
    *,
    num_resamples: int = 2000,
    over_tasks: bool = False,
) -> list[Interval]:
    """The statistic of every mechanism with its percentile interval.

    Raises:
        ValueError: If there are fewer than two seeds: nothing can be said of how they scatter.
    """
    _require_seeds(skills)
    ends = _percentiles(bootstrap(skills, statistic, rng, num_resamples=num_resamples, over_tasks=over_tasks))
    return [Interval(*map(float, line)) for line in zip(_once(skills, statistic), *ends, strict=True)]


def ranks(skills: Skills, rng: np.random.Generator, *, num_resamples: int = 2000) -> list[Rank]:
    """The rank of every mechanism by mean skill, with an interval over resampled tasks and seeds.

    Raises:
        ValueError: If there are fewer than two seeds.
    """
    _require_seeds(skills)
    resampled = _ranks(bootstrap(skills, mean, rng, num_resamples=num_resamples, over_tasks=True))
    own = _ranks(_once(skills, mean)[None])[0]
    low, high = _percentiles(resampled)
    return [
        Rank(int(rank), int(np.floor(first)), int(np.ceil(last)), float(share))
        for rank, first, last, share in zip(own, low, high, (resampled == 1).mean(axis=0), strict=True)
    ]


def probability_of_improvement(
    first: Float[np.ndarray, "tasks seeds"], second: Float[np.ndarray, "tasks other_seeds"]
) -> float:
    """Chance that a run of the first beats a run of the second on a task drawn at random; a tie counts half.

    Source: Agarwal et al. (2021), section 4.3.
    """
    higher = first[:, :, None] > second[:, None, :]
    equal = first[:, :, None] == second[:, None, :]
    return float((higher + 0.5 * equal).mean())


def solved_rate(num_solved: int, num_runs: int) -> Interval:
    """Share of runs that solved their task, with Wilson's interval.

    Raises:
        ValueError: If there is no run.

    Source: Wilson (1927).
    """
    if num_runs < 1:
        raise ValueError("there is no run")
    ends = stats.binomtest(num_solved, num_runs).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(num_solved / num_runs, float(ends.low), float(ends.high))


def variance_share(scores: Float[np.ndarray, "mechanisms seeds"]) -> float:
    """Share of a task's variance that lies between mechanisms and not between seeds of one; 0 if nothing varies.

    The sum of squares between mechanisms over the total one, η².
    """
    if np.ptp(scores) <= TOLERANCE:
        return 0.0
    total = float(((scores - scores.mean()) ** 2).sum())
    between = float(scores.shape[1] * ((scores.mean(axis=1) - scores.mean()) ** 2).sum())
    return between / total


def _once(skills: Skills, statistic: Statistic) -> Float[np.ndarray, " mechanisms"]:
    """The statistic of every run once."""
    runs = skills.reshape(len(skills), -1)
    (values,) = statistic(runs, np.ones((1, runs.shape[1])))
    found: Float[np.ndarray, " mechanisms"] = values
    return found


def _ranks(values: Float[np.ndarray, "resamples mechanisms"]) -> Int[np.ndarray, "resamples mechanisms"]:
    """One more than the number of mechanisms with a higher value; what is higher by rounding only is equal."""
    is_higher = values[:, None, :] > values[:, :, None] + TOLERANCE
    found: Int[np.ndarray, "resamples mechanisms"] = 1 + is_higher.sum(axis=2)
    return found


def _percentiles(
    resampled: Float[np.ndarray, "resamples mechanisms"] | Int[np.ndarray, "resamples mechanisms"],
) -> tuple[Float[np.ndarray, " mechanisms"], Float[np.ndarray, " mechanisms"]]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=0)
    return low, high


def _require_seeds(skills: Skills) -> None:
    if skills.shape[2] < 2:
        raise ValueError(f"an interval over seeds needs at least two; there is {skills.shape[2]}")
