from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from synthbench.reports.grid import grid
from synthbench.reports.statistics import SIGNIFICANCE, combined_error, holm, not_separable, paired_p, pairs

MakeFrame = Callable[..., pd.DataFrame]

fractions = st.lists(st.floats(0, 1), min_size=2, max_size=8)
probabilities = st.lists(st.floats(0, 1), min_size=0, max_size=12)


@given(scores=st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64)), min_size=2, max_size=8))
def test_the_paired_test_is_that_of_scipy_where_differences_vary(scores: list[tuple[int, int]]) -> None:
    first, second = ({seed: pair[side] / 64 for seed, pair in enumerate(scores)} for side in (0, 1))
    differences = [a - b for a, b in scores]

    if len(set(differences)) > 1:
        expected = float(stats.ttest_rel(list(first.values()), list(second.values())).pvalue)
    else:
        expected = 1.0 if differences[0] == 0 else 0.0
    assert paired_p(first, second) == pytest.approx(expected, abs=1e-12)


def test_a_difference_that_varies_in_the_last_bits_only_is_constant() -> None:
    first = {seed: 0.1 * seed for seed in range(1, 6)}
    second = {seed: score + 0.3 for seed, score in first.items()}
    last_bits = {seed: score * (1 + 1e-15) for seed, score in first.items()}

    assert paired_p(first, second) == 0
    assert paired_p(first, last_bits) == 1


def test_only_common_seeds_are_paired() -> None:
    first, second = {1: 0.1, 2: 0.5, 3: 0.4, 9: 1.0}, {1: 0.2, 2: 0.4, 3: 0.1, 7: 0.0}
    expected = stats.ttest_rel([0.1, 0.5, 0.4], [0.2, 0.4, 0.1]).pvalue

    assert paired_p(first, second) == pytest.approx(expected)
    assert paired_p({1: 0.0, 2: 0.1}, {2: 0.9, 3: 1.0}) == 1


@given(p=probabilities)
def test_holm_rejects_what_the_step_down_procedure_rejects(p: list[float]) -> None:
    rejected = set()
    for step, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[index] * (len(p) - step) >= SIGNIFICANCE:
            break
        rejected.add(index)

    adjusted = holm(np.array(p, dtype=float))
    assert {index for index, value in enumerate(adjusted) if value < SIGNIFICANCE} == rejected
    assert all(adjusted >= np.array(p) - 1e-15)
    assert all(adjusted <= 1)


def test_holm_agrees_with_the_example_worked_by_hand() -> None:
    np.testing.assert_allclose(holm(np.array([0.04, 0.01, 0.03])), [0.06, 0.03, 0.06])


def test_errors_combine_by_their_squares() -> None:
    assert combined_error(3.0, 4.0) == pytest.approx(5.0)


def test_pairs_are_those_of_mechanisms_with_a_score(make_frame: MakeFrame) -> None:
    of = grid(make_frame({"slay": [0.1, 0.2], "linear": [0.3, 0.3], "yat": [None, None], "performer": [0.5]}))
    found = {(pair.first.name, pair.second.name): pair.p for pair in pairs(of)}

    assert set(found) == {("performer", "linear"), ("performer", "slay"), ("linear", "slay")}
    assert found["performer", "slay"] == 1
    assert found["linear", "slay"] == pytest.approx(stats.ttest_rel([0.1, 0.2], [0.3, 0.3]).pvalue)


def test_what_holm_leaves_open_is_not_separable_from_the_best(make_frame: MakeFrame) -> None:
    rng = np.random.default_rng(3)
    scores = {
        mech: list(mean + 0.01 * rng.standard_normal(5))
        for mech, mean in {"softmax": 0.9, "slay": 0.899, "linear": 0.5, "performer": 0.88}.items()
    }
    of = grid(make_frame(scores))
    tied = dict(zip((one.name for one in of.mechanisms), not_separable(of.cells_of(of.tasks[0])), strict=True))

    best = max(scores, key=lambda mech: float(np.mean(scores[mech])))
    others = [mech for mech in scores if mech != best]
    p = [float(stats.ttest_rel(scores[best], scores[mech]).pvalue) for mech in others]
    expected = {mech: bool(value >= 0.05) for mech, value in zip(others, holm(np.array(p)), strict=True)}
    assert tied == {best: False} | expected
    assert set(expected.values()) == {True, False}
