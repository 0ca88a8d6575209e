"""Statistics over many tasks: cases worked by hand; studies/error_rates has how often intervals cover."""

import math

import numpy as np
import pytest
from scipy import stats

from synthbench.reports.aggregates import (
    balanced,
    interquartile_means,
    over_seeds,
    over_tasks,
    possibly_best,
    probability_of_improvement,
    ranks,
    solved_rates,
    t_interval,
)
from synthbench.reports.statistics import Prior

ONE = ["a"] * 4
"""Four tasks of one category."""


def test_a_t_interval_is_cut_to_what_can_be() -> None:
    expected = stats.t.interval(0.95, 4, 0.5, 0.1)

    assert t_interval(0.5, 0.1, 4.0) == pytest.approx((0.5, *expected))
    assert (t_interval(0.95, 0.1, 4.0).high, t_interval(0.05, 0.1, 4.0).low) == (1, 0)
    assert t_interval(0.05, 0.1, 4.0, low=-1.0).low < 0
    assert t_interval(0.5, 0.0, math.nan) == (0.5, 0.5, 0.5)
    assert [math.isnan(end) for end in t_interval(0.5, math.nan, 4.0)] == [False, True, True]


def test_the_errors_of_tasks_add_up_by_their_weights() -> None:
    # One mechanism, so that each cell has its own variance: 0.01 and 0.04 of three runs each.
    skills = np.array([[[0.4, 0.5, 0.6], [0.3, 0.5, 0.7]]])
    (interval,) = over_seeds(skills, np.array([0.25, 0.75]))

    parts = np.array([0.25**2 * 0.01 / 3, 0.75**2 * 0.04 / 3])
    dof = parts.sum() ** 2 / (parts**2 / 2).sum()
    assert interval == pytest.approx((0.5, *stats.t.interval(0.95, dof, 0.5, math.sqrt(parts.sum()))))


def test_tasks_scatter_about_the_mean_of_their_category() -> None:
    values, categories = np.array([0.1, 0.3, 0.7, 0.9, 0.8]), ["a", "a", "b", "b", "c"]
    interval = over_tasks(values, categories)

    # Means 0.2, 0.8 and 0.8; squares 4 · 0.01 of two free tasks; errors 1/2, 1/2 and 1 of a variance.
    error = math.sqrt(0.02 * (1 / 2 + 1 / 2 + 1)) / 3
    assert interval == pytest.approx((0.6, *stats.t.interval(0.95, 2, 0.6, error)))
    assert math.isnan(over_tasks(values[1:], categories[1:]).low)


def test_the_interquartile_mean_cuts_a_quarter_of_the_weight() -> None:
    # A task of one category and two of another, one run each: weights 1/2, 1/4 and 1/4.
    skills = np.array([[[1.0], [0.4], [0.0]]])
    (interval,) = interquartile_means(skills, balanced(["b", "a", "a"]))

    assert interval.value == pytest.approx(0.5 * 0.4 + 0.5 * 1.0)
    assert math.isnan(interval.low)  # of one seed nothing is known of others


def test_the_error_of_the_interquartile_mean_is_that_of_runs_cut_to_the_quartiles() -> None:
    # Quartiles 0.2 and 0.6. Cut, the tasks have 0.2 0.2, 0.2 0.4, 0.5 0.6, 0.6 0.6.
    skills = np.array([[[0.0, 0.1], [0.2, 0.4], [0.5, 0.6], [0.8, 1.0]]])
    (interval,) = interquartile_means(skills, balanced(ONE))

    parts = np.array([0.2**2, 0.1**2]) / 2 / 2 / 4**2
    dof = parts.sum() ** 2 / (parts**2).sum()
    expected = stats.t.interval(0.95, dof, 0.425, 2 * math.sqrt(parts.sum()))
    assert interval == pytest.approx((0.425, max(0, expected[0]), min(1, expected[1])))


def test_where_many_runs_solve_and_many_do_not_the_solved_rate_has_the_interval_over_seeds() -> None:
    """Tasks differ far more than their runs do, so Wilson's interval of all runs would be wider."""
    is_solved, weights = (np.arange(10) < np.array([9, 1, 9, 1])[:, None])[None], balanced(ONE)

    assert solved_rates(is_solved, weights) == over_seeds(is_solved.astype(float), weights)


def test_where_runs_hardly_differ_the_solved_rate_has_wilsons_interval() -> None:
    all_solved, one_task = solved_rates(
        np.arange(4)[:, None] >= np.array([0, 1])[:, None, None] * np.ones(5), balanced(ONE)
    )

    wilson = stats.binomtest(20, 20).proportion_ci(method="wilson")
    assert all_solved == pytest.approx((1.0, wilson.low, 1.0))
    # The runs of each task agree: nothing but Wilson's says how sure that is.
    wilson = stats.binomtest(15, 20).proportion_ci(method="wilson")
    assert one_task == pytest.approx((0.75, wilson.low, wilson.high))


def test_runs_of_other_weights_are_worth_fewer() -> None:
    (result,) = solved_rates(np.ones((1, 3, 4), dtype=bool), balanced(["a", "a", "b"]))

    # Weights 1/4, 1/4, 1/2: worth 4 · 8 / 3 runs; Wilson's lower end where all solved is n / (n + z²).
    z = stats.norm.ppf(0.975)
    assert result == pytest.approx((1.0, (32 / 3) / (32 / 3 + z**2), 1.0))


def test_ranks_are_shared_by_equals_and_certain_for_the_distant() -> None:
    base = np.random.default_rng(3).random((6, 5)) * 0.1 + 0.3
    result = ranks(np.stack([base, base + 0.5, base + 1e-15, base - 0.3]), ["a"] * 6)

    assert result == [(2, 2, 3), (1, 1, 1), (2, 2, 3), (4, 4, 4)]


def test_a_rank_is_certain_from_the_studentised_range_on() -> None:
    """Two mechanisms of four tasks: the range of two is a two-sided t test."""
    lead = np.array([0.05, 0.15, 0.05, 0.15])
    limit = stats.t.ppf(0.975, 3) * stats.sem(lead)

    def high_of_best(mean: float) -> int:
        skills = np.stack([0.4 + lead - lead.mean() + mean, np.full(4, 0.4)])[:, :, None]
        return ranks(skills, ONE)[0].high

    assert [high_of_best(0.99 * limit), high_of_best(1.01 * limit)] == [2, 1]


def test_too_few_tasks_leave_every_rank_open() -> None:
    skills = np.stack([np.full((3, 4), 0.9), np.full((3, 4), 0.1)])

    assert ranks(skills, ["a", "b", "c"]) == [(1, 1, 2), (2, 1, 2)]


def test_probability_of_improvement_counts_pairs_of_runs_and_near_ones_half() -> None:
    first = np.array([[0.5, 0.9], [0.1, 0.1], [0.999, 1.0], [0.3, 0.3]])
    second = np.array([[0.6, 0.1], [0.1, 0.2], [0.981, 0.999], [0.1, 0.1]])
    chances = np.array([3 / 4, 1 / 4, 1 / 2, 1.0])

    interval = probability_of_improvement(first, second, ONE)
    assert interval.value == pytest.approx(chances.mean())
    clustered, wilson = over_tasks(chances, ONE), stats.binomtest(5, 8).proportion_ci(method="wilson")
    assert interval.low <= min(clustered.low, wilson.low)
    assert interval.high == clustered.high == 1.0
    other = probability_of_improvement(second, first, ONE)
    assert other == pytest.approx((1 - interval.value, 1 - interval.high, 1 - interval.low))


def test_two_hundredths_are_no_tie_unless_a_task_says_so() -> None:
    first, second = np.full((4, 1), 0.52), np.full((4, 1), 0.5)

    assert probability_of_improvement(first, second, ONE).value == 1.0
    assert probability_of_improvement(first - 0.001, second, ONE).value == 0.5
    assert probability_of_improvement(first, second, ONE, np.array([0.02, 0.02, 0.03, 0.03])).value == 0.75


def test_always_winning_on_a_few_tasks_is_no_proof_of_always_winning() -> None:
    interval = probability_of_improvement(np.full((24, 3), 0.9), np.full((24, 3), 0.1), ["a"] * 24)

    assert interval == pytest.approx((1.0, stats.binomtest(24, 24).proportion_ci(method="wilson").low, 1.0))
    of_nine_categories = probability_of_improvement(np.full((9, 1), 0.9), np.full((9, 1), 0.1), list("abcdefghi"))
    assert of_nine_categories.value == 1.0  # though its weights sum to a little more


def test_where_both_win_often_the_interval_is_that_of_the_tasks() -> None:
    first, second = np.tile([[0.1, 0.9, 0.1], [0.9, 0.1, 0.1]], 8)[:, :, None]
    chances = np.tile([0.0, 1.0, 0.5], 8)

    assert probability_of_improvement(first, second, ["a"] * 24) == over_tasks(chances, ["a"] * 24)


def test_a_mechanism_far_below_is_not_possibly_the_best() -> None:
    draws = np.random.default_rng(1)
    skills = 0.5 + 0.02 * draws.standard_normal((4, 6, 3))
    skills[3] -= 0.2
    weights = np.full(6, 1 / 6)

    assert possibly_best(skills, weights).tolist() == [True, True, True, False]
    assert possibly_best(skills[:, :, :1], weights).all()  # nothing is known of single runs
    assert not possibly_best(skills[:, :, :1], weights, Prior(0.0004, 10))[3]
    assert possibly_best(np.tile([[[0.5]], [[0.6]]], (1, 6, 3)), weights).tolist() == [False, True]  # no scatter
    assert possibly_best(skills[:1], weights).all()
    skills[3, 0, :2] = 0.1, 0.4  # two runs that differ on one task
    assert possibly_best(skills[:, :, :2], weights).tolist() == [True, True, True, False]


def test_the_best_is_among_those_that_are_possibly_the_best() -> None:
    """If all means are equal, any one is the best; the share of draws that miss it is at most 5 %."""
    draws, weights = np.random.default_rng(3), np.full(6, 1 / 6)
    skills = 0.5 + 0.02 * draws.standard_normal((300, 12, 6, 3))
    skills[:, 6:, :, 1:] = np.nan  # half of the mechanisms have one seed
    has_first, has_last = np.mean([possibly_best(draw, weights)[[0, -1]] for draw in skills], axis=0)

    assert 0.95 <= has_first < 1
    assert 0.95 <= has_last < 1
