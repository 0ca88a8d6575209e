"""Statistics over many tasks: one number per mechanism, such as its mean skill, with an interval.

There are two kinds of 95 % intervals. An interval *over seeds* treats tasks as fixed: it covers the value that
infinitely many runs on the same tasks would give. An interval *over tasks* treats tasks as a sample: it covers the
value on all similar tasks. Skills, from 0 (chance level) to 1 (the best possible score), are in an array [mechanisms,
tasks, seeds]. Every mechanism has at least one run of each task; missing runs are NaN. A failed run has skill 0. All
categories of tasks have equal weight, and all tasks within a category have equal weight. ``studies/error_rates``
simulates how often the intervals contain the true value.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from synthbench.reports.statistics import CONFIDENCE, TOLERANCE, Prior, own_variance, spread

Skills = Float[np.ndarray, "mechanisms tasks seeds"]
PerTask = Float[np.ndarray, " tasks"]
PerCell = Float[np.ndarray, "mechanisms tasks"]

FEW = 5
"""The variance of a proportion is unreliable if its rarer outcome occurred fewer times than this."""
TIE = 0.02
"""Two runs whose skills differ by less than this are tied: neither counts as better."""


class Interval(NamedTuple):
    """An estimate and the two ends of its 95 % interval; an unknown number is NaN."""

    value: float
    low: float
    high: float


UNKNOWN = Interval(math.nan, math.nan, math.nan)


class Rank(NamedTuple):
    """The rank of a mechanism, with an interval of ranks.

    Rank 1 is the best, and mechanisms with equal mean skills share the better rank.
    """

    value: int
    low: int
    """Best rank in the interval."""
    high: int
    """Worst rank in the interval."""

    @property
    def ends(self) -> str:
        """The interval of ranks as text: ``2-5``, or ``2`` if both ends are equal."""
        return f"{self.low}-{self.high}" if self.low < self.high else str(self.low)


def balanced(categories: Sequence[str]) -> PerTask:
    """Return one weight per task, given the category of each task: all categories have equal total weight.

    The tasks of a category have equal weights. All weights together sum to 1.
    """
    sizes = {category: categories.count(category) for category in categories}
    return np.array([1 / (len(sizes) * sizes[category]) for category in categories])


def by_category(categories: Sequence[str]) -> dict[str, Bool[np.ndarray, " tasks"]]:
    """Map each category to a mask of tasks, which is True for the tasks of that category.

    The categories are in the order of their first tasks.
    """
    return {name: np.array([category == name for category in categories]) for name in dict.fromkeys(categories)}


def t_interval(value: float, error: float, dof: float, *, low: float = 0.0, high: float = 1.0) -> Interval:
    """Return a value with its 95 % interval by Student's t distribution.

    The interval is clipped to [``low``, ``high``]. Its ends are NaN if ``value`` or ``error`` is NaN.

    Args:
        value: The estimate.
        error: Standard error of the estimate.
        dof: Degrees of freedom of the standard error.
        low: Lower limit of the interval.
        high: Upper limit of the interval.

    Source: Student (1908).
    """
    if math.isnan(value) or math.isnan(error):
        return Interval(value, math.nan, math.nan)
    # 0 and 1 come out exact except for rounding, which differs between processors.
    value = round(value, 12)
    half = float(special.stdtrit(dof, (1 + CONFIDENCE) / 2)) * error if error > TOLERANCE else 0.0
    return Interval(value, max(low, value - half), min(high, value + half))


def over_runs(
    values: Sequence[float] | Float[np.ndarray, " runs"], *, low: float = -math.inf, high: float = math.inf
) -> Interval:
    """Return the mean of ``values`` (one per run) with its 95 % t interval, clipped to [``low``, ``high``].

    With a single value, the ends of the interval are NaN. Without values, the mean is NaN too.
    """
    if not len(values):
        return UNKNOWN
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else math.nan
    return t_interval(float(np.mean(values)), error, len(values) - 1.0, low=low, high=high)


def over_seeds(skills: Skills, weights: PerTask, prior: Prior | None = None, *, low: float = 0.0) -> list[Interval]:
    """Return the weighted mean skill of each mechanism, with a 95 % interval for fixed tasks and random seeds.

    The squared standard error is the sum over tasks of weight² · variance of one run / number of runs. If a mechanism
    has a single run of a task, the variance is estimated from mechanisms with several runs of that task. If there are
    no such mechanisms, the variance of ``prior`` is used; if ``prior`` is None, the ends of the interval are NaN.
    ``weights`` has one weight per task, with sum 1. ``low`` is the lowest possible mean.
    """
    errors, of_errors = _error_over_seeds(skills, *_of_runs(skills, prior), weights)
    return [
        t_interval(value, error, free, low=low)
        for value, error, free in zip((np.nanmean(skills, axis=2) @ weights).tolist(), errors, of_errors, strict=True)
    ]


def possibly_best(skills: Skills, weights: PerTask, prior: Prior | None = None) -> Bool[np.ndarray, " mechanisms"]:
    """Return one flag per mechanism: False if another mechanism has a significantly higher weighted mean skill.

    The tests are one-sided, each at 5 % divided by the number of other mechanisms, so the truly best mechanism gets
    True with 95 % confidence. Tasks are treated as fixed and seeds as random.

    Args:
        skills: Skills of the mechanisms to compare.
        weights: Weight of each task.
        prior: Variance of skill over seeds for tasks where no mechanism has two runs. If ``prior`` is None and there
            are such tasks, every flag is True.

    Source: Hsu (1981), multiple comparisons with the best. Unlike the paper, we correct for several comparisons by
        Bonferroni's bound. The test of two mechanisms uses the smaller of their two numbers of degrees of freedom.
    """
    errors, dof = map(np.array, _error_over_seeds(skills, *_of_runs(skills, prior, is_alone=False), weights))
    means = np.nanmean(skills, axis=2) @ weights
    of_pairs = np.fmin(np.fmin(dof[:, None], dof[None]), 1e9)
    limit = special.stdtrit(np.maximum(of_pairs, 1), 1 - (1 - CONFIDENCE) / max(1, len(skills) - 1))
    # Without any scatter there are no degrees of freedom, and every difference counts.
    reach = np.nan_to_num(limit) * np.hypot(errors[:, None], errors[None])
    is_beaten: Bool[np.ndarray, " mechanisms"] = (means[:, None] - means[None] > reach + TOLERANCE).any(axis=0)
    return ~is_beaten


def p_over_seeds(differences: Float[np.ndarray, "tasks seeds"], weights: PerTask) -> float:
    """Return the p value of a two-sided t test that two mechanisms have the same weighted mean skill.

    ``differences`` holds the difference of skill between the two mechanisms for each task and seed. Tasks are treated
    as fixed and seeds as random, as in :func:`over_seeds`. If the differences on each task are the same for all seeds,
    a t test would give p = 0. In this case, p is ``2 ** (1 - num_seeds)``, the smallest p value of a sign-flip test
    over seeds. The result is 1 if the mean difference is 0, and NaN with fewer than two seeds.
    """
    num_seeds = differences.shape[1]
    if num_seeds < 2:
        return math.nan
    errors, of_errors = _error_over_seeds(differences[None], *_of_runs(differences[None], None), weights)
    mean = abs(float(differences.mean(axis=1) @ weights))
    if errors[0] > TOLERANCE:
        return float(2 * special.stdtr(of_errors[0], -mean / errors[0]))
    return 1.0 if mean <= TOLERANCE else 2.0 ** (1 - num_seeds)


def over_tasks(values: PerTask, categories: Sequence[str]) -> Interval:
    """Return the mean of ``values`` (one per task), with a 95 % interval that treats tasks as a random sample.

    Categories are treated as fixed and have equal weight. The variance between tasks is assumed to be the same in all
    categories, so there is a standard error even if a category has a single task.

    The ends of the interval are NaN unless the number of tasks exceeds the number of categories by at least two.
    """
    error, dof = _error_over_tasks(values[None], categories)
    return t_interval(float(balanced(categories) @ values), float(error[0]), dof)


def interquartile_means(skills: Skills, weights: PerTask, prior: Prior | None = None) -> list[Interval]:
    """Return the weighted interquartile mean of each mechanism's skills, with a 95 % interval over seeds.

    The interquartile mean is the mean over the middle half of the runs. Its interval treats tasks as fixed. A
    mechanism's skills are clipped to their weighted quartiles; the standard error is twice that of the mean of clipped
    skills.

    The standard error needs the variance of clipped skills over seeds, on each task. If a mechanism has a single run of
    a task, the variance there is estimated from other mechanisms' runs of the task. If every mechanism has a single run
    of the task, the variance is ``prior.variance``.

    Source: Agarwal et al. (2021), section 4.3; Tukey & McLaughlin (1963) for the error of a trimmed mean.
    """
    num_mechanisms, num_runs = len(skills), _num_runs(skills)
    runs = skills.reshape(num_mechanisms, -1)
    order = np.argsort(runs, axis=1, kind="stable")  # NaN is last
    ascending = np.nan_to_num(np.take_along_axis(runs, order, axis=1))
    run_weights = np.where(np.isnan(skills), 0, (weights / num_runs)[..., None]).reshape(runs.shape)
    run_weights = np.take_along_axis(run_weights, order, axis=1)
    up_to = run_weights.cumsum(axis=1)
    of_middle = np.clip(up_to, 0.25, 0.75) - np.clip(up_to - run_weights, 0.25, 0.75)
    quartiles = [
        ascending[np.arange(num_mechanisms), (up_to < share - TOLERANCE).sum(axis=1)] for share in (0.25, 0.75)
    ]
    cut = np.clip(skills, *(ends[:, None, None] for ends in quartiles))
    variance, dof = own_variance(cut)
    of_tasks, of_tasks_dof = _of_runs(cut, prior)
    variance, dof = (np.where(dof > 0, *both) for both in ((variance, of_tasks), (dof, of_tasks_dof)))
    errors, of_errors = _error_over_seeds(skills, variance, dof, weights)
    values = (2 * (of_middle * ascending).sum(axis=1)).tolist()
    return [t_interval(value, 2 * error, free) for value, error, free in zip(values, errors, of_errors, strict=True)]


def reached(skills: Skills, threshold: float) -> Skills:
    """Return 1 for each run whose skill is at least the threshold, 0 for any other run, and NaN for a missing run."""
    has_reached: Skills = np.where(np.isnan(skills), math.nan, skills >= threshold - TOLERANCE)
    return has_reached


def solved_rates(is_solved: Skills, weights: PerTask) -> list[Interval]:
    """Return each mechanism's weighted share of runs that solved their task, with a 95 % interval over seeds.

    :func:`over_seeds` computes the interval from the variance over seeds. If this variance is unreliable, the interval
    is widened to include Wilson's interval of a proportion. The variance is unreliable if fewer than five runs solved
    their task, if fewer than five did not, or if, on each task, all runs had the same outcome.

    Args:
        is_solved: Result of :func:`reached`: 1 for a run that solved its task, 0 for any other run, and NaN for a
            missing run.
        weights: Weight of each task.
    """
    num_runs = _num_runs(is_solved)
    num_worth = 1 / (weights**2 / num_runs).sum(axis=1)
    num_solved = np.nansum(is_solved, axis=(1, 2))
    is_rare = np.minimum(num_solved, num_runs.sum(axis=1) - num_solved) < FEW
    return [
        _reaching_wilsons(interval, worth) if is_few or interval.low == interval.high else interval
        for interval, is_few, worth in zip(
            over_seeds(is_solved, weights), is_rare.tolist(), num_worth.tolist(), strict=True
        )
    ]


def _reaching_wilsons(interval: Interval, num_worth: float) -> Interval:
    """Widen the interval of a proportion to include Wilson's interval for ``num_worth`` trials.

    Source: Wilson (1927); Kish (1965) for ``num_worth``, the effective number of weighted trials, (Σ w)² / Σ w² for
    weights w.
    """
    z = float(special.ndtri((1 + CONFIDENCE) / 2))
    shrinkage = 1 + z**2 / num_worth
    centre = (interval.value + z**2 / (2 * num_worth)) / shrinkage
    half = z * math.sqrt(interval.value * (1 - interval.value) / num_worth + (z / (2 * num_worth)) ** 2) / shrinkage
    return Interval(
        interval.value,
        float(np.clip(np.fmin(interval.low, centre - half), 0, 1)),
        float(np.clip(np.fmax(interval.high, centre + half), 0, 1)),
    )


def ranks(skills: Skills, categories: Sequence[str]) -> list[Rank]:
    """Rank all mechanisms by mean skill, with 95 % intervals of the ranks that treat tasks as a random sample.

    All categories have equal weight. One mechanism is certainly better than another if the 95 % interval of their
    difference lies above 0. A mechanism's best possible rank is 1 + the number of mechanisms that are certainly better.
    Its worst possible rank is the number of mechanisms − the number that are certainly worse. The confidence of 95 %
    holds for all pairs together. With too few tasks for an interval, no mechanism is certainly better.

    Source: Mogstad et al. (2024) for ranks from simultaneous intervals. The intervals of differences follow Tukey, with
    one standard error per pair of mechanisms, estimated from the pair's differences on the tasks.
    """
    num_mechanisms = len(skills)
    means = np.nanmean(skills, axis=2)
    value = means @ balanced(categories)
    differences = means[:, None] - means[None]
    errors, dof = _error_over_tasks(differences.reshape(num_mechanisms**2, -1), categories)
    is_unknown = math.isnan(dof) or num_mechanisms < 2
    limit = math.nan if is_unknown else _farthest_quantile(num_mechanisms, dof)
    lead = value[:, None] - value[None]
    is_better = lead > limit * errors.reshape(lead.shape) + TOLERANCE
    num_above = (lead > TOLERANCE).sum(axis=0)
    return [
        Rank(1 + int(above), 1 + int(better), num_mechanisms - int(worse))
        for above, better, worse in zip(num_above, is_better.sum(axis=0), is_better.sum(axis=1), strict=True)
    ]


def probability_of_improvement(
    first: Float[np.ndarray, "tasks seeds"],
    second: Float[np.ndarray, "tasks other_seeds"],
    categories: Sequence[str],
    ties: PerTask | float = TIE,
) -> Interval:
    """Return the probability that a run of the first mechanism beats a run of the second one on a random task.

    The 95 % interval treats tasks as a random sample. All categories have equal weight. If one of the two mechanisms
    seldom wins, the interval is widened to include Wilson's interval of a proportion. Two runs whose skills differ by
    less than ``ties`` (one number, or one per task) are tied. A tie counts as half a win.

    Source: Agarwal et al. (2021), section 4.3, where only equal scores are ties.
    """
    lead = first[:, :, None] - second[:, None, :]
    least = np.reshape(ties, (-1, 1, 1)) - TOLERANCE
    wins = np.where(np.isnan(lead), math.nan, (lead >= least) + 0.5 * (np.abs(lead) < least))
    chances = np.nanmean(wins, axis=(1, 2))
    interval = over_tasks(chances, categories)
    # Weights may sum to a little less than 1 by rounding, which would turn "always wins" into "seldom loses".
    interval = interval._replace(value=round(interval.value, 12))
    num_worth = 1 / float((balanced(categories) ** 2).sum())
    is_rare = min(interval.value, 1 - interval.value) * num_worth < FEW
    return _reaching_wilsons(interval, num_worth) if is_rare and not math.isnan(interval.low) else interval


def _num_runs(skills: Skills) -> PerCell:
    counts: PerCell = (~np.isnan(skills)).sum(axis=2).astype(float)
    return counts


def _of_runs(skills: Skills, prior: Prior | None, *, is_alone: bool = True) -> tuple[PerCell, PerCell]:
    """Return the variance of one run over seeds for each mechanism and task, and the variance's degrees of freedom.

    On a task where no mechanism has two runs, both numbers are taken from ``prior``. If ``is_alone`` is True, the
    degrees of freedom are ``dof_alone`` of :class:`~synthbench.reports.statistics.Spread`, for statements about one
    mechanism alone.
    """
    variance, dof, of_alone = (part.T for part in spread(np.moveaxis(skills, 1, 0)))
    dof = of_alone if is_alone else dof
    if prior is None:
        return variance, dof
    is_unknown = np.isnan(variance)
    return np.where(is_unknown, prior.variance, variance), np.where(is_unknown, prior.dof, dof)


def _error_over_seeds(
    skills: Skills, variance: PerCell, dof: PerCell, weights: PerTask
) -> tuple[list[float], list[float]]:
    """Return the standard error of each mechanism's weighted mean over fixed tasks, and its degrees of freedom.

    ``variance`` is the variance of one run over seeds, with its degrees of freedom ``dof``.

    Source: Satterthwaite (1946).
    """
    parts = weights**2 * variance / _num_runs(skills)
    squared_errors = parts.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        of_all = squared_errors**2 / (parts**2 / dof).sum(axis=1)
    return np.sqrt(squared_errors).tolist(), of_all.tolist()


@lru_cache
def _farthest_quantile(num_means: int, dof: float) -> float:
    """Return the 95 % quantile of the largest t value between any two of ``num_means`` means of equal expectation.

    It is the quantile of the studentised range, divided by √2.
    """
    from scipy import stats  # noqa: PLC0415 - three quarters of a second, and only a ranking needs it

    return float(stats.studentized_range.ppf(CONFIDENCE, num_means, dof)) / math.sqrt(2)


def _error_over_tasks(
    values: Float[np.ndarray, "rows tasks"], categories: Sequence[str]
) -> tuple[Float[np.ndarray, " rows"], float]:
    """Return the standard error of each row's mean over tasks, and the degrees of freedom of these errors.

    Categories have equal weight. All results are NaN with fewer than two degrees of freedom.
    """
    of_category = np.array(list(by_category(categories).values()), dtype=float)
    sizes = of_category.sum(axis=1)
    dof = len(categories) - len(sizes)
    if dof < 2:
        return np.full(len(values), math.nan), math.nan
    residuals = values - (values @ of_category.T / sizes) @ of_category
    variance = (residuals**2).sum(axis=1) / dof
    return np.sqrt(variance * (1 / sizes).sum()) / len(sizes), float(dof)
