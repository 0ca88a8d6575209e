"""Statistics over many tasks: cases worked by hand, and coverage by simulation."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from synthbench.reports import aggregates
from synthbench.reports.aggregates import (
    bootstrap,
    interquartile_mean,
    intervals,
    mean,
    probability_of_improvement,
    ranks,
    solved_rate,
    variance_share,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_interquartile_mean_leaves_out_a_quarter_on_either_side() -> None:
    runs = np.array([[0.0, 9.0, 2.0, 4.0, 3.0, 1.0, -7.0, 5.0], [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 10.0]])
    once, uneven = np.ones(8), np.array([3.0, 0.0, 0.0, 2.0, 0.0, 1.0, 0.0, 2.0])
    counts = np.stack([once, uneven])

    # Uneven: 0 0 0 1 4 4 5 5, and six times 2 and two times 10.
    np.testing.assert_allclose(interquartile_mean(runs, counts), [[(1 + 2 + 3 + 4) / 4, 2], [(0 + 1 + 4 + 4) / 4, 2]])
    np.testing.assert_allclose(mean(runs, counts), [[17 / 8, 3], [19 / 8, 4]])


@pytest.mark.parametrize("num_runs", range(4, 12))
def test_the_interquartile_mean_is_scipys_trimmed_mean_of_the_resample(num_runs: int) -> None:
    draws = rng(num_runs)
    runs = draws.choice([0.0, 0.25, 1.0, 1.0], size=(3, num_runs)) * draws.random((3, num_runs)).round(1)
    counts = draws.multinomial(num_runs, np.full(num_runs, 1 / num_runs), size=20)
    expected = [[stats.trim_mean(np.repeat(own, count), 0.25) for own in runs] for count in counts]

    np.testing.assert_allclose(interquartile_mean(runs, counts.astype(float)), expected, atol=1e-12)


def test_resamples_keep_tasks_whole_and_mechanisms_paired() -> None:
    # Seeds of task t have the values 10 t and 10 t + 1; the second mechanism is the first plus 100.
    first = np.array([[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]])
    skills = np.stack([first, first + 100])
    drawn = bootstrap(skills, mean, rng(), num_resamples=500, over_tasks=False)

    np.testing.assert_allclose(drawn[:, 1] - drawn[:, 0], 100)
    assert drawn[:, 0].min() == pytest.approx(10.0)
    assert drawn[:, 0].max() == pytest.approx(11.0)
    over_tasks = bootstrap(skills, mean, rng(), num_resamples=500, over_tasks=True)
    assert over_tasks[:, 0].min() < 10.0 - 1
    assert over_tasks[:, 0].max() > 11.0 + 1


@pytest.mark.parametrize("over_tasks", [False, True])
def test_resamples_do_not_depend_on_how_many_are_held_at_once(
    monkeypatch: pytest.MonkeyPatch, *, over_tasks: bool
) -> None:
    skills = rng(1).random((3, 4, 5))
    whole = bootstrap(skills, mean, rng(), num_resamples=100, over_tasks=over_tasks)
    monkeypatch.setattr(aggregates, "_AT_ONCE", 7 * skills[0].size)

    np.testing.assert_allclose(bootstrap(skills, mean, rng(), num_resamples=100, over_tasks=over_tasks), whole)


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_intervals_cover_the_truth_about_as_often_as_they_say(statistic: Any) -> None:
    """Ten seeds of twelve tasks, normal around 0.5, as skills of one mechanism: the truth is 0.5."""
    draws = rng(2)
    inside = 0
    for _ in range(300):
        skills = 0.5 + 0.1 * draws.standard_normal((1, 12, 10))
        (interval,) = intervals(skills, statistic, draws, num_resamples=300)
        inside += interval.low <= 0.5 <= interval.high

    # The percentile bootstrap is a little narrow at ten seeds: 0.93 is what theory gives, ± 3.5 standard errors.
    assert 0.88 <= inside / 300 <= 0.98


def test_ranks_are_shared_by_equals_and_certain_for_the_distant() -> None:
    base = rng(3).random((6, 5)) * 0.1
    skills = np.stack([base, base + 0.5, base, base - 0.5])
    found = ranks(skills, rng())

    assert [rank.value for rank in found] == [2, 1, 2, 4]
    assert [(rank.low, rank.high) for rank in found] == [(2, 2), (1, 1), (2, 2), (4, 4)]
    assert [rank.p_first for rank in found] == [0, 1, 0, 0]


def test_what_differs_by_rounding_only_shares_its_rank() -> None:
    skills = np.full((2, 3, 2), 0.7)
    skills[1] += 1e-15

    assert [rank.value for rank in ranks(skills, rng())] == [1, 1]
    assert [rank.p_first for rank in ranks(skills, rng())] == [1, 1]


def test_ranks_of_two_alike_mechanisms_overlap() -> None:
    skills = 0.5 + 0.1 * rng(4).standard_normal((2, 20, 5))

    for rank in ranks(skills, rng()):
        assert (rank.low, rank.high) == (1, 2)
        assert 0.01 < rank.p_first < 0.99


def test_probability_of_improvement_counts_pairs_of_runs() -> None:
    first = np.array([[1.0, 3.0], [0.0, 0.0]])
    second = np.array([[2.0, 0.0], [0.0, 1.0]])

    # Task 1: 1 beats 0, 3 beats both, 1 loses to 2: 3 of 4. Task 2: two ties, two losses: 1 of 4.
    assert probability_of_improvement(first, second) == pytest.approx((3 / 4 + 1 / 4) / 2)
    assert probability_of_improvement(first, second) + probability_of_improvement(second, first) == pytest.approx(1)


def test_the_solved_rate_has_wilsons_interval() -> None:
    interval = solved_rate(8, 10)

    # z = 1.96: centre (0.8 + z²/20) / (1 + z²/10), half width z √(0.016 + z²/400) / (1 + z²/10).
    assert interval.value == 0.8
    assert (interval.low, interval.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert solved_rate(0, 5).low == 0
    assert solved_rate(0, 5).high > 0.3
    with pytest.raises(ValueError, match="no run"):
        solved_rate(0, 0)


def test_the_solved_rates_interval_covers() -> None:
    draws = rng(5)
    counts = draws.binomial(20, 0.7, size=500)
    inside = [interval.low <= 0.7 <= interval.high for interval in (solved_rate(int(count), 20) for count in counts)]

    assert 0.92 <= np.mean(inside) <= 0.99


def test_the_variance_share_is_between_over_total() -> None:
    # Means 1 and 3 around 2: between 2 · (1 + 1) = 4; within 4 · 0.25 = 1.
    assert variance_share(np.array([[0.5, 1.5], [2.5, 3.5]])) == pytest.approx(4 / 5)
    assert variance_share(np.full((3, 4), 0.2)) == 0
    assert variance_share(np.array([[0.0, 1.0], [0.0, 1.0]])) == 0


@pytest.mark.parametrize("statistic", [intervals, ranks])
def test_one_seed_gives_no_interval(statistic: Any) -> None:
    arguments = (rng(),) if statistic is ranks else (mean, rng())
    with pytest.raises(ValueError, match="at least two; there is 1"):
        statistic(np.zeros((2, 3, 1)), *arguments)
