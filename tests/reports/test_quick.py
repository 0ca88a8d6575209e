"""A first verdict: cases worked by hand, and simulations of how often it errs."""

from itertools import product

import numpy as np
import pytest

from synthbench.reports.aggregates import Rank, balanced
from synthbench.reports.quick import decide, least_p, level_of, rank_interval, sign_flip_p
from synthbench.reports.statistics import SIGNIFICANCE

FULL = [f"category {number // 6}" for number in range(48)]
"""Categories of a suite of 48 tasks."""


def residuals(shape: tuple[int, ...], rng: np.random.Generator, *, is_skewed: bool = False) -> np.ndarray:
    """Scatter of runs around the score of their mechanism, in parts of 11 levels; the tasks are the second axis.

    On five of six tasks by .4 rung; on the sixth by 3 rungs, or, if skewed, every tenth run climbs 10 rungs higher.
    """
    usual = rng.normal(0, 0.4, shape)
    rare = 10 * (rng.random(shape) < 0.1) - 1 if is_skewed else rng.normal(0, 3, shape)
    is_rare = np.arange(shape[1]) % 6 == 5
    return np.asarray(np.where(is_rare[None, :, None], rare, usual) / 11)


def test_the_levels_of_all_queries_add_up_to_the_significance() -> None:
    spent = sum(level_of(query) for query in range(1, 100_000))
    assert SIGNIFICANCE - 1e-6 < spent < SIGNIFICANCE


def test_every_change_of_sign_is_counted() -> None:
    rng = np.random.default_rng(0)
    categories = ["a", "a", "a", "b", "b", "c", "c", "c", "c"]
    differences = rng.integers(-9, 12, size=len(categories)) / 8
    weighted = balanced(categories) * differences
    sums = np.array(list(product((-1, 1), repeat=len(categories)))) @ np.abs(weighted)

    shares = ((sums >= weighted.sum() - 1e-9).mean(), (sums <= weighted.sum() + 1e-9).mean())
    assert sign_flip_p(differences, categories) == pytest.approx(shares, abs=0.004)


@pytest.mark.parametrize("num_tasks", [5, 20, 46])
def test_p_is_as_small_as_the_tasks_allow_and_no_smaller(num_tasks: int) -> None:
    differences, categories = np.linspace(0.1, 0.4, num_tasks), ["a", *["b"] * (num_tasks - 1)]

    assert sign_flip_p(differences, categories) == pytest.approx((least_p(num_tasks), 1))
    assert sign_flip_p(-differences, categories) == pytest.approx((1, least_p(num_tasks)))
    assert sign_flip_p(0 * differences, categories) == (1, 1)


def test_twenty_tasks_can_decide_the_fiftieth_query_and_five_not_even_the_first() -> None:
    assert decide(least_p(20), 1.0, 50) == "keep"
    assert decide(1.0, least_p(20), 50) == "discard"
    assert decide(least_p(5), 1.0, 1) == decide(1.0, least_p(5), 1) == "undecided"


@pytest.mark.parametrize("is_skewed", [False, True])
def test_a_mechanism_against_itself_is_seldom_kept_or_discarded_in_fifty_queries(is_skewed: bool) -> None:  # noqa: FBT001 - pytest fills it in
    rng = np.random.default_rng(1)
    categories = [f"category {number // 3}" for number in range(24)]
    decisions = []
    for _sequence in range(100):
        incumbent = residuals((1, 24, 1), rng, is_skewed=is_skewed)[0, :, 0]
        mine = residuals((50, 24, 1), rng, is_skewed=is_skewed)[..., 0]
        asked = [decide(*sign_flip_p(one - incumbent, categories), query) for query, one in enumerate(mine, start=1)]
        decisions.append(set(asked))
    by_chance = 2 * np.sqrt(SIGNIFICANCE * (1 - SIGNIFICANCE) / len(decisions))
    assert np.mean(["keep" in asked for asked in decisions]) <= SIGNIFICANCE + by_chance
    assert np.mean(["discard" in asked for asked in decisions]) <= SIGNIFICANCE + by_chance


def test_one_that_is_two_rungs_better_on_every_task_is_kept_and_one_that_is_worse_discarded() -> None:
    rng = np.random.default_rng(2)
    categories = [f"category {number // 3}" for number in range(24)]
    noise = residuals((40, 24, 2), rng)
    lead = 2 / 11 + noise[..., 0] - noise[..., 1]
    kept = [decide(*sign_flip_p(one, categories), 1) for one in lead]
    dropped = [decide(*sign_flip_p(-one, categories), 1) for one in lead]

    assert kept.count("keep") > 20
    assert dropped == [{"keep": "discard", "discard": "keep"}.get(decision, decision) for decision in kept]


def simulated(num_run: int, rng: np.random.Generator) -> tuple[Rank, int]:
    """The rank interval of the first of 12 mechanisms from some tasks of each category, and its rank on all."""
    abilities = np.linspace(0.3, 0.6, 12)[rng.permutation(12)]
    heights = abilities[:, None] + rng.normal(0, 0.12, (12, len(FULL)))
    runs = heights[..., None] + residuals((12, len(FULL), 3), rng)
    is_run = np.arange(len(FULL)) % 6 < num_run
    full = runs.mean(axis=2) @ balanced(FULL)
    quick = balanced(np.array(FULL)[is_run].tolist()) @ runs[:, is_run]
    interval = rank_interval(float(quick[0, 0]), quick[1:], full[1:])
    return interval, 1 + int((full[1:] > full[0]).sum())


@pytest.mark.parametrize("num_run", [1, 3, 6])
def test_the_rank_of_the_full_suite_is_in_nine_of_ten_intervals(num_run: int) -> None:
    rng = np.random.default_rng(3)
    made = [simulated(num_run, rng) for _ in range(150)]

    assert np.mean([interval.low <= rank <= interval.high for interval, rank in made]) >= 0.9
    assert all(interval.low <= interval.value <= interval.high for interval, _ in made)
    widths = [interval.high - interval.low for interval, _ in made]
    assert np.mean(widths) < {1: 9, 3: 5.5, 6: 2}[num_run]
