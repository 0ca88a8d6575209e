"""Rank correlations against scipy and numpy, and their intervals against simulated truths."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from studies.validity import correlation
from studies.validity.correlation import interval, spearman

COLUMN = arrays(float, 12, elements=st.integers(0, 6).map(float))


@given(COLUMN, COLUMN)
def test_it_is_spearmans_rho_also_with_ties(x: np.ndarray, y: np.ndarray) -> None:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert math.isnan(float(spearman(x, y)))
    else:
        assert float(spearman(x, y)) == pytest.approx(stats.spearmanr(x, y).statistic)


def test_a_partial_correlation_is_that_of_the_formula_for_one_covariate() -> None:
    rng = np.random.default_rng(1)
    x, y, z = rng.normal(size=(3, 30))
    y = y + z
    xy, xz, yz = (stats.spearmanr(one, other).statistic for one, other in ((x, y), (x, z), (y, z)))

    partial = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert float(spearman(x, y, z)) == pytest.approx(partial)
    assert math.isnan(float(spearman(2 * z, z**3, z)))  # what follows from the covariate alone is taken out


def test_an_interval_covers_the_truth_and_does_not_depend_on_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correlation, "NUM_DRAWS", 500)
    rng = np.random.default_rng(3)
    population = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=50_000).T
    truth = stats.spearmanr(*population).statistic
    samples = [population[:, rng.integers(50_000, size=24)] for _ in range(100)]
    intervals = [interval(spearman, *sample) for sample in samples]

    assert sum(one.low <= truth <= one.high for one in intervals) >= 86
    assert all(one.low <= one.value <= one.high for one in intervals)
    assert np.mean([one.high - one.low for one in intervals]) < 0.9


def test_mechanisms_without_a_number_are_left_out() -> None:
    x, y = np.random.default_rng(4).normal(size=(2, 14))
    gaps = x.copy()
    gaps[[2, 9]] = math.nan
    kept = ~np.isnan(gaps)

    assert interval(spearman, gaps, y) == interval(spearman, x[kept], y[kept])
    assert not any(map(math.isnan, interval(spearman, gaps[:9], y[:9])))
    assert all(map(math.isnan, interval(spearman, gaps[:8], y[:8])))


def test_where_nothing_varies_there_is_no_interval() -> None:
    x = np.arange(10.0)

    assert all(map(math.isnan, interval(spearman, x, np.ones(10))))
    assert interval(spearman, x, x).value == 1


def test_families_that_agree_within_make_the_interval_wider() -> None:
    rng = np.random.default_rng(5)
    of_family = rng.normal(size=(2, 8)).repeat(4, axis=1)
    x, y = of_family + 0.01 * rng.normal(size=(2, 32))
    families = [name for name in "abcdefgh" for _ in range(4)]
    over_mechanisms, over_families = (
        interval(spearman, x, y),
        correlation.interval_over_families(spearman, families, x, y),
    )

    assert over_families.value == over_mechanisms.value
    assert over_families.high - over_families.low > 1.3 * (over_mechanisms.high - over_mechanisms.low)
    assert math.isnan(correlation.interval_over_families(spearman, ["a", "b"] * 16, x, y).low)


def test_random_pairs_are_seldom_as_close() -> None:
    x = np.arange(8.0)

    assert correlation.permutation_p(x, x) == pytest.approx(2 / correlation.NUM_DRAWS, rel=0.6)
    assert correlation.permutation_p(x, np.array([3.0, 1.0, 5.0, 0.0, 4.0, 2.0, 7.0, 6.0])) > 0.05
    assert math.isnan(correlation.permutation_p(x[:7], x[:7]))


def test_weights_are_fitted_without_the_family_that_they_predict() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(24, 3))
    y = 2 * x[:, 0] + x[:, 1] + 0.1 * rng.normal(size=24)
    families = [f"family {number % 6}" for number in range(24)]
    predicted = correlation.fitted(families, x, y)

    assert float(spearman(predicted, y)) > 0.9
    own = np.array([name == "family 0" for name in families])
    changed = y.copy()
    changed[own] = y[own][::-1]  # the ranks of all others stay
    np.testing.assert_allclose(correlation.fitted(families, x, changed)[own], predicted[own])
    assert float(spearman(correlation.fitted(families, -x, y), y)) <= 0  # no weight is negative
