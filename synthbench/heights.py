"""How high a model climbs: from the accuracy on each rung of a ladder to one number."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

HEIGHT = "height over rungs"
"""The metric of a row whose score is a height divided by the number of rungs."""
HALF = 0.5
"""The skill at which a load is read off."""

_FIELDS = ("load", "score", "base", "ceiling")


class RungScore(NamedTuple):
    """What a row says of one rung: its load, the accuracy on what is new, and what that is counted from."""

    load: float
    score: float
    base: float
    ceiling: float

    @property
    def skill(self) -> float:
        """Where the accuracy lies between base (0) and ceiling (1)."""
        return (self.score - self.base) / (self.ceiling - self.base)


def metrics_of_rungs(rungs: Sequence[RungScore]) -> dict[str, float]:
    """The rungs as metrics of a row: ``rung1.load``, ``rung1.score`` and so on, the easiest first."""
    return {
        f"rung{number}.{field}": getattr(rung, field) for number, rung in enumerate(rungs, start=1) for field in _FIELDS
    }


def rungs_in(metrics: Mapping[str, float | None]) -> list[RungScore]:
    """The rungs that the metrics of a row name, the easiest first; none in a row without a ladder.

    >>> rungs_in({"rung1.load": 2.0, "rung1.score": 0.75, "rung1.base": 0.5, "rung1.ceiling": 1.0})[0].skill
    0.5
    """
    rungs: list[RungScore] = []
    while f"rung{len(rungs) + 1}.load" in metrics:
        values = [metrics.get(f"rung{len(rungs) + 1}.{field}") for field in _FIELDS]
        rungs.append(RungScore(*(float("nan") if value is None else float(value) for value in values)))
    return rungs


def isotonic(skills: Sequence[float]) -> list[float]:
    """The non-increasing numbers nearest to some, by the sum of squares: neighbours out of order become their mean.

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


def profile(rungs: Sequence[RungScore]) -> list[float]:
    """Skill on each rung, made non-increasing, then clipped to [0, 1].

    It is clipped last, or noise around 0 would count as skill.
    """
    return [min(1.0, max(0.0, skill)) for skill in isotonic([rung.skill for rung in rungs])]


def height(rungs: Sequence[RungScore]) -> float:
    """Rungs that are mastered, the parts of those that are partly: from 0 to their number.

    >>> height([RungScore(2, 1, 0.5, 1), RungScore(3, 0.75, 0.5, 1), RungScore(4, 0.4, 0.5, 1)])
    1.5
    """
    return sum(profile(rungs))


def load_at_half(rungs: Sequence[RungScore]) -> float:
    """The load at which the skill falls to one half, between two rungs on a line over the logarithm of the load.

    ``inf`` if it does not fall that far on the ladder; 0 if it is lower on the first rung.
    """
    skills = profile(rungs)
    below = next((index for index, skill in enumerate(skills) if skill < HALF), None)
    if below is None:
        return float("inf")
    if below == 0:
        return 0.0
    upper, lower = skills[below - 1], skills[below]
    share = (upper - HALF) / (upper - lower)
    first, last = rungs[below - 1].load, rungs[below].load
    return float(first * (last / first) ** share)
