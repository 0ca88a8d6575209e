"""Scores of ladders (tasks with several levels of difficulty), computed from the accuracy on every level."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from typing import NamedTuple

LADDER_SCORE = "height over rungs"
"""Name under which rows record :func:`ladder_score`."""
HALF = 0.5
"""Skill at the capacity: the capacity is the load at which the skill falls to this value."""


class LevelScore(NamedTuple):
    """Result of a run on one level of difficulty: load, accuracy on scored targets, shortcut baseline and ceiling.

    The load is the quantity that makes the level difficult, such as the number of pairs to remember. The shortcut
    baseline is the highest accuracy of any known rule that avoids what the task tests.
    """

    load: float
    score: float
    base: float
    ceiling: float

    @property
    def skill(self) -> float:
        """Accuracy, rescaled so that the shortcut baseline is 0 and the ceiling is 1."""
        return (self.score - self.base) / (self.ceiling - self.base)


def metrics_of_levels(levels: Sequence[LevelScore]) -> dict[str, float]:
    """Return all levels' results as metrics of a row: ``rung1.load``, ``rung1.score`` and so on, easiest first."""
    names = (name for number in range(1, len(levels) + 1) for name in _names_of(number))
    return dict(zip(names, (value for level in levels for value in level), strict=True))


def levels_in(metrics: Mapping[str, float | None]) -> list[LevelScore]:
    """Return the results on all levels of difficulty in a row's metrics, easiest level first; empty if there are none.

    The stored metrics use the word ``rung`` for a level.

    >>> levels_in({"rung1.load": 2.0, "rung1.score": 0.75, "rung1.base": 0.5, "rung1.ceiling": 1.0})[0].skill
    0.5
    """
    found = [[metrics.get(name) for name in _names_of(number + 1)] for number in range(num_levels_in(metrics))]
    return [LevelScore(*[math.nan if value is None else float(value) for value in values]) for values in found]


def num_levels_in(metrics: Mapping[str, float | None]) -> int:
    """Count the levels whose results are in the metrics of a row."""
    return next(number for number in count() if _names_of(number + 1)[0] not in metrics)


@cache
def _names_of(number: int) -> tuple[str, ...]:
    """Return the metric names of level ``number``, from 1, in the order of :class:`LevelScore`; cached to save time."""
    return tuple(f"rung{number}.{field}" for field in LevelScore._fields)


def isotonic(skills: Sequence[float]) -> list[float]:
    """Fit a non-increasing sequence to ``skills`` by least squares; neighbours in the wrong order both get their mean.

    Source: Ayer et al. (1955), pool adjacent violators.

    >>> isotonic([1.0, 0.5, 0.75, 0.0])
    [1.0, 0.625, 0.625, 0.0]
    """
    pools: list[tuple[float, int]] = []
    for skill in skills:
        mean, count = skill, 1
        while pools and pools[-1][0] < mean:
            before, size = pools.pop()
            mean, count = (before * size + mean * count) / (size + count), size + count
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


def profile(levels: Sequence[LevelScore]) -> list[float]:
    """Return the skill on each level: first made non-increasing by :func:`isotonic`, then clipped to [0, 1].

    If skills were clipped first, noise around 0 would look like positive skill.
    """
    return [min(1.0, max(0.0, skill)) for skill in isotonic([level.skill for level in levels])]


def ladder_score(levels: Sequence[LevelScore]) -> float:
    """Return the score on a task with levels: the mean of :func:`profile`, roughly the fraction of mastered levels.

    >>> ladder_score([LevelScore(2, 1, 0.5, 1), LevelScore(3, 0.75, 0.5, 1), LevelScore(4, 0.4, 0.5, 1)])
    0.5
    """
    return sum(profile(levels)) / len(levels)


def load_at_half(levels: Sequence[LevelScore]) -> float:
    """Return the capacity: the load (such as a number of pairs to remember) at which the skill falls to one half.

    Between two levels, the skill is interpolated linearly over the logarithm of the load. The result is ``inf`` if the
    skill is at least one half on every level. It is 0 if the skill is below one half on the first level.
    """
    skills = profile(levels)
    below = next((index for index, skill in enumerate(skills) if skill < HALF), None)
    if below is None:
        return float("inf")
    if below == 0:
        return 0.0
    upper, lower = skills[below - 1], skills[below]
    share = (upper - HALF) / (upper - lower)
    first, last = levels[below - 1].load, levels[below].load
    return float(first * (last / first) ** share)
