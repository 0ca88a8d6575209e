"""From the accuracy on each level to a score."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench import levels
from synthbench.levels import LevelScore, ladder_score

SKILLS = st.lists(st.floats(-2, 2), min_size=1, max_size=16)


def ladder(*skills: float) -> list[LevelScore]:
    """Levels of loads 2, 4, 8, ... with some skills above a base of one quarter."""
    return [LevelScore(2.0**n, 0.25 + 0.75 * skill, 0.25, 1.0) for n, skill in enumerate(skills, start=1)]


@given(SKILLS, st.integers(0, 2**32 - 1))
def test_the_isotonic_fit_falls_keeps_the_sum_and_none_is_nearer_and_a_score_lies_between_0_and_1(
    skills: list[float], seed: int
) -> None:
    fit = np.array(levels.isotonic(skills))
    others = -np.sort(-(fit + 0.3 * np.random.default_rng(seed).standard_normal((50, len(skills)))), axis=1)

    assert (np.diff(fit) <= 0).all()
    assert fit.sum() == pytest.approx(sum(skills), abs=1e-9)
    assert ((others - skills) ** 2).sum(axis=1).min() >= ((fit - skills) ** 2).sum() - 1e-9
    assert 0 <= ladder_score(ladder(*skills)) <= 1


def test_what_falls_already_is_only_clipped() -> None:
    assert levels.profile(ladder(1.1, 0.5, -0.2)) == pytest.approx([1, 0.5, 0])


def test_noise_around_the_base_is_no_score() -> None:
    """Clipped before the fit, these levels would make a score of .05."""
    assert ladder_score(ladder(-0.1, 0.1, -0.1, 0.1, -0.1, 0.1, -0.1, 0.1)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("skills", "load"),
    [((1, 0.75, 0.25), math.sqrt(4 * 8)), ((1, 0.5, 0.0), 4), ((1, 1, 0.9), math.inf), ((0.4, 0.1, 0.0), 0)],
    ids=["between", "at a level", "mastered", "not begun"],
)
def test_half_of_the_skill_is_between_two_loads(skills: tuple[float, ...], load: float) -> None:
    assert levels.load_at_half(ladder(*skills)) == pytest.approx(load, rel=1e-6, abs=0)


def test_a_row_gives_back_its_levels() -> None:
    two = ladder(1, 0.5)
    assert levels.levels_in({**levels.metrics_of_levels(two), "other": 1.0}) == two
    assert levels.levels_in({"shortcut.latest": 0.5}) == []
