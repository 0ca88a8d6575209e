"""Tests within a task: cases worked by hand, against scipy, and against all shuffles of a small task."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from synthbench.reports import statistics

NAN = math.nan
probabilities = st.lists(st.floats(0, 1), min_size=0, max_size=12)
runs = st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64)), min_size=2, max_size=8)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(pairs=runs)
def test_the_paired_test_of_two_cells_is_that_of_scipy_where_differences_vary(pairs: list[tuple[int, int]]) -> None:
    scores = np.array([pairs], dtype=float).transpose(0, 2, 1) / 64
    tests = statistics.pair_tests(scores, is_paired=True)
    differences = {a - b for a, b in pairs}

    constant = 1.0 if differences == {0} else 0.0
    expected = float(stats.ttest_rel(*scores[0]).pvalue) if len(differences) > 1 else constant
    assert tests.p[0, 0] == pytest.approx(expected, abs=1e-12)


def test_only_common_seeds_are_paired() -> None:
    scores = np.array([[[0.1, 0.5, 0.4, NAN, 1.0], [0.2, 0.4, 0.1, 0.0, NAN]]])
    expected = stats.ttest_rel([0.1, 0.5, 0.4], [0.2, 0.4, 0.1])

    tests = statistics.pair_tests(scores, is_paired=True)
    assert tests.p[0, 0] == pytest.approx(expected.pvalue)
    assert tests.difference[0, 0] == pytest.approx(0.1)
    assert np.isnan(statistics.pair_tests(np.array([[[0.0, 0.1, NAN], [NAN, NAN, 0.9]]]), is_paired=True).p[0, 0])


def test_the_unpaired_test_of_cells_that_scatter_alike_has_all_degrees_of_freedom_of_the_task() -> None:
    runs = np.array([0.1, 0.3, 0.2, 0.4])
    scores = np.stack([runs, runs[::-1] + 0.25, runs[[1, 0, 3, 2]] + 0.1])[None]
    tests = statistics.pair_tests(scores, is_paired=False)

    error = math.sqrt(2 * runs.var(ddof=1) / 4)
    np.testing.assert_allclose(tests.difference[0], [-0.25, -0.1, 0.15])
    np.testing.assert_allclose(tests.error[0], error)
    np.testing.assert_allclose(tests.dof[0], 9)
    np.testing.assert_allclose(tests.p[0], 2 * stats.t.sf(np.abs(tests.difference[0]) / error, 9))


def test_cells_that_scatter_by_rounding_only_differ_for_certain_or_not_at_all() -> None:
    constant = np.full(3, 0.7)
    scores = np.stack([constant, constant * (1 + 1e-15), constant + 0.1])[None]

    for is_paired in (False, True):
        np.testing.assert_array_equal(statistics.pair_tests(scores, is_paired=is_paired).p, [[1, 0, 0]])


def test_a_cell_without_a_run_is_not_tested() -> None:
    tests = statistics.pair_tests(np.array([[[0.1, 0.2], [NAN, NAN], [0.3, 0.5]]]), is_paired=False)

    assert np.isnan(tests.p[0]).tolist() == [True, False, True]


@given(scores=st.lists(st.integers(0, 8), min_size=6, max_size=6, unique=True))
def test_shuffles_are_counted_as_all_of_them_are(scores: list[int]) -> None:
    """Two cells of three runs have twenty ways to share them; the smallest p is two of these."""
    values = np.array(scores, dtype=float)
    observed = abs(values[:3].mean() - values[3:].mean())
    all_ways = [
        abs(values[list(one)].mean() - np.delete(values, list(one)).mean()) for one in combinations(range(6), 3)
    ]
    exact = np.mean([distance >= observed - 1e-9 for distance in all_ways])

    result = statistics.permutation_test(values.reshape(2, 3), is_paired=False)
    assert result.least_p == pytest.approx(0.1)
    assert exact >= result.least_p
    assert result.p == pytest.approx(exact, abs=0.02)


def test_shuffles_within_seeds_are_counted_as_all_of_them_are() -> None:
    differences = np.array([0.1, 0.2, -0.05, 0.4, 0.3])
    base = np.array([0.5, 0.1, 0.9, 0.3, 0.2])
    signs = np.array(list(product([-1, 1], repeat=5)))
    exact = np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-9)

    result = statistics.permutation_test(np.stack([base + differences, base]), is_paired=True)
    assert result.p == pytest.approx(exact, abs=0.02)
    assert result.least_p == 1 / 16
    # The seeds differ far more than the mechanisms: unpaired, nothing is to be seen.
    assert statistics.permutation_test(np.stack([base + differences, base]), is_paired=False).p > 2 * exact


def test_the_least_p_is_that_of_the_clearest_difference() -> None:
    clear = np.array([[0.1, 0.11], [0.5, 0.51], [0.52, 0.53], [0.9, 0.91]])

    # The four cells may be exchanged as wholes, in 4! ways: of 8! / 2!⁴ in all, or of 4!² within seeds.
    for is_paired, expected in ((False, 24 * 2**4 / 40320), (True, 1 / 24)):
        result = statistics.permutation_test(clear, is_paired=is_paired)
        assert result.least_p == pytest.approx(expected)
        assert result.p == pytest.approx(expected, abs=0.01)
    assert statistics.least_p([2, 2, 2], is_paired=False) == pytest.approx(1 / 15)
    assert statistics.least_p([3, 2], is_paired=False) == pytest.approx(0.1)


def test_a_single_run_takes_part_and_hides_no_difference_of_the_others() -> None:
    several = np.array([0.3, 0.6])[:, None] + 0.01 * rng(8).standard_normal((2, 4))
    single = np.full((8, 4), NAN)
    single[:, 0] = 0.05 * np.arange(8)

    assert statistics.permutation_test(np.concatenate([several, single]), is_paired=False).p < 0.01


@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-10, 10), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_the_permutation_test_asks_neither_for_the_unit_nor_for_the_last_digits(
    scale: float, shift: float, seed: int
) -> None:
    scores = rng(seed).random((4, 3))
    scores[3, 1:] = NAN

    for is_paired in (False, True):
        whole = scores if not is_paired else scores[:3]
        near = statistics.permutation_test(shift + scale * whole, is_paired=is_paired)
        assert near.p == pytest.approx(statistics.permutation_test(whole, is_paired=is_paired).p, abs=1e-3)


def test_missing_runs_are_not_shuffled() -> None:
    whole = rng(3).random((3, 4))
    padded = np.concatenate([whole, np.full((3, 2), NAN)], axis=1)

    assert statistics.permutation_test(padded, is_paired=False) == statistics.permutation_test(whole, is_paired=False)
    assert statistics.permutation_test(padded, is_paired=True) == statistics.permutation_test(whole, is_paired=True)
    # Without two common seeds nothing can be paired.
    apart = np.array([[0.1, 0.2, NAN, NAN], [NAN, NAN, 0.7, 0.8]])
    assert statistics.permutation_test(apart, is_paired=True) == statistics.permutation_test(apart, is_paired=False)


def test_seeds_correlate_as_far_as_they_share_something() -> None:
    shared, own = rng(5).standard_normal((400, 1, 8)), rng(6).standard_normal((400, 3, 8))
    half = np.sqrt(0.5)

    error = 1 / math.sqrt(400 * 3 * 7)
    for scores, expected in ((own, 0), (half * shared + half * own, 0.5), (np.repeat(shared, 3, axis=1), 1)):
        result, estimated = statistics.seed_correlation(scores)
        assert result == pytest.approx(expected, abs=0.05)
        assert estimated == pytest.approx(error)
        assert statistics.shares_seeds(scores) == (expected > 0)


def test_few_tasks_do_not_tell_that_seeds_go_together() -> None:
    """Two runs of two cells correlate by 1 or by -1, whatever they are."""
    assert statistics.seed_correlation(np.array([[[0.1, 0.3], [0.2, 0.9]]])) == pytest.approx((1.0, 1.0))
    assert not statistics.shares_seeds(np.array([[[0.1, 0.3], [0.2, 0.9]]]))


def test_cells_that_do_not_scatter_or_lack_a_seed_tell_nothing_of_correlation() -> None:
    first, second = np.array([0.1, 0.5, 0.2]), np.array([0.3, 0.2, 0.9])
    expected = np.corrcoef(first, second)[0, 1]
    scores = np.stack([first, second, np.full(3, 1.0), np.array([0.1, NAN, 0.3])])[None]

    assert statistics.seed_correlation(scores) == pytest.approx((expected, 1 / math.sqrt(2)))
    assert not statistics.shares_seeds(np.full((2, 3, 4), 0.5))


@given(p=probabilities)
def test_holm_rejects_what_the_step_down_procedure_rejects(p: list[float]) -> None:
    rejected = set()
    for step, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[index] * (len(p) - step) >= statistics.SIGNIFICANCE:
            break
        rejected.add(index)

    adjusted = statistics.holm(np.array(p, dtype=float))
    assert {index for index, value in enumerate(adjusted) if value < statistics.SIGNIFICANCE} == rejected
    assert all(adjusted >= np.array(p) - 1e-15)
    assert all(adjusted <= 1)


@given(p=probabilities)
def test_benjamini_hochberg_is_that_of_scipy_to_the_last_bit_and_leaves_what_is_no_test(p: list[float]) -> None:
    adjusted = statistics.benjamini_hochberg(np.array([NAN, *p, NAN]))

    assert np.isnan(adjusted[[0, -1]]).all()
    assert adjusted[1:-1].tolist() == stats.false_discovery_control(p).tolist()


def test_holm_agrees_with_the_example_worked_by_hand() -> None:
    np.testing.assert_allclose(statistics.holm(np.array([NAN, 0.04, 0.01, NAN, 0.03])), [NAN, 0.06, 0.03, NAN, 0.06])


def test_omega_squared_takes_off_what_chance_puts_between_cells() -> None:
    # Means 1 and 3 around 2: between 2 · (1 + 1) = 4; within 4 · 0.25 = 1, of two free runs 0.5 each.
    assert statistics.omega_squared(np.array([[0.5, 1.5], [2.5, 3.5]])) == pytest.approx((4 - 0.5) / (5 + 0.5))
    assert statistics.omega_squared(np.full((3, 4), 0.2)) == 0
    assert statistics.omega_squared(np.array([[0.0, 1.0], [0.0, 1.0]])) == 0
    assert math.isnan(statistics.omega_squared(np.array([[0.5, 0.6]])))
    assert math.isnan(statistics.omega_squared(np.array([[0.5], [0.6]])))
    null = [statistics.omega_squared(rng(seed).standard_normal((6, 5))) for seed in range(200)]
    assert np.mean(null) < 0.06  # η² has 5 / 29
