"""Ladders, read from the results of runs, and summaries of runs on a ladder.

A ladder is the list of a task's levels (difficulties) by rising load, such as a number of pairs to remember.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from synthbench.levels import LevelScore, levels_in, profile

LEAST = 0.5
"""Smallest relevant difference of two mean scores, in levels."""
MOST_TICKS = 6
"""Largest number of loads that are marked on an axis."""
SPLIT = 3.0
"""If the scores of a mechanism's runs on a task span more levels than this, some runs count as learned, others not."""


class Ladder(NamedTuple):
    """The levels (difficulties) of a task, in order of rising load.

    A load is, for example, a number of pairs to remember.
    """

    unit: str
    """The unit of the load, in the plural: ``pairs``."""
    loads: tuple[float, ...]
    """Load of every level, the easiest first."""

    @property
    def num_levels(self) -> int:
        """The number of levels (difficulties)."""
        return len(self.loads)

    @property
    def margin(self) -> float:
        """The smallest relevant difference of two mean scores: ``LEAST`` levels, divided by the number of levels."""
        return LEAST / self.num_levels

    @property
    def ticks(self) -> tuple[float, ...]:
        """The loads to mark on an axis: powers of two, at most ``MOST_TICKS`` of them.

        If no power of two is in the range of loads, the first and the last load are marked.

        >>> Ladder("pairs", (3.0, 4.0, 6.0, 8.0, 12.0)).ticks
        (4.0, 8.0)
        """
        exponents = range(math.ceil(math.log2(self.loads[0])), math.floor(math.log2(self.loads[-1])) + 1)
        step = -(-len(exponents) // MOST_TICKS) or 1
        return tuple(2.0**exponent for exponent in exponents[::step]) or (self.loads[0], self.loads[-1])

    def load_text(self, load: float) -> str:
        """Format a capacity (load at half skill): ``23``, ``≥ 64`` (above all levels) or ``< 2`` (below all levels).

        >>> [Ladder("pairs", (2.0, 64.0)).load_text(load) for load in (23.4, 5.26, math.inf, 0.0, math.nan)]
        ['23', '5.3', '≥ 64', '< 2', '--']
        """
        if math.isnan(load):
            return "--"
        if math.isinf(load):
            return f"≥ {self.loads[-1]:g}"
        return f"{load:.{1 if load < 10 else 0}f}" if load else f"< {self.loads[0]:g}"

    def sortable(self, load: float) -> float:
        """Return a load at half skill as a number for sorting: ``inf`` becomes twice the load of the last level."""
        return min(load, 2 * self.loads[-1])


def ladder_in(arguments: Mapping[str, Any]) -> Ladder | None:
    """Read a task's ladder (its levels) from the task's arguments; None if the arguments contain no valid levels.

    >>> ladder_in({"load": "pairs", "rungs": [{"load": 2, "length": 8}, {"load": 3, "length": 12}]})
    Ladder(unit='pairs', loads=(2.0, 3.0))
    """
    unit, levels = arguments.get("load"), arguments.get("rungs")
    if not (isinstance(unit, str) and isinstance(levels, list) and levels):
        return None
    loads = [level.get("load") if isinstance(level, dict) else None for level in levels]
    known = tuple(float(load) for load in loads if isinstance(load, int | float) and 0 < load < math.inf)
    return Ladder(unit, known) if len(known) == len(loads) else None


def scored_levels(metrics: Mapping[str, float | None]) -> list[LevelScore]:
    """Read a run's results on all levels of difficulty from its metrics.

    The list is empty if a level has no score, or if the ceiling of a level is not above its shortcut baseline.
    """
    levels = levels_in(metrics)
    return levels if all(level.base < level.ceiling and not math.isnan(level.score) for level in levels) else []


class Profile(NamedTuple):
    """Mean, lowest and highest skill of a mechanism's runs on each level of difficulty, easiest level first.

    Skills are in [0, 1] and never increase from a level to the next harder one.
    """

    mean: tuple[float, ...]
    low: tuple[float, ...]
    """Lowest skill of any run on each level."""
    high: tuple[float, ...]
    num_runs: int


def mean_profile(ladder: Ladder, runs: Iterable[Sequence[LevelScore]]) -> Profile | None:
    """Average the skills of several runs on each level of difficulty.

    Runs without a result on some level are left out. The result is None if this leaves no run. The mean of the result
    over all levels equals the mean score of these runs.
    """
    skills = [profile(levels) for levels in runs if len(levels) == ladder.num_levels]
    if not skills:
        return None
    of_levels = list(zip(*skills, strict=True))
    return Profile(tuple(map(fmean, of_levels)), tuple(map(min, of_levels)), tuple(map(max, of_levels)), len(skills))


def num_learned(scores: Collection[float]) -> int | None:
    """Count the runs that learned the task: their score is above the midpoint between the lowest and the highest score.

    Here, a score is the usual score (0 to 1) times the number of levels. If the lowest and the highest score differ by
    at most ``SPLIT`` levels, runs cannot be told apart, and the result is None.

    >>> num_learned([2.4, 10.8, 11.0]), num_learned([4.3, 4.5, 4.3])
    (2, None)
    """
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return sum(score > (low + high) / 2 for score in scores) if high - low > SPLIT else None
