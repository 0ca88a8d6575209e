"""Ladders and runs on them, made up for the tests of the reports."""

from synthbench.levels import LevelScore
from synthbench.reports.ladder import Ladder

BASE = 0.2


def ladder_of(unit: str, *loads: int) -> Ladder:
    return Ladder(unit, tuple(map(float, loads)))


PAIRS = ladder_of("pairs", 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
TOKENS = ladder_of("tokens", 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
TASK_FACTS: dict[str, tuple[str, Ladder]] = {
    "mqar": ("recall", PAIRS),
    "string_copy": ("copying", ladder_of("symbols", 3, 5, 7, 10, 14, 20)),
    "parity_running": ("state_tracking", TOKENS),
    "s5_words": ("state_tracking", TOKENS),
}


def levels_at(ladder: Ladder, wanted: float) -> list[LevelScore]:
    """A run that masters as many levels as are wanted, the last of them in part."""
    skills = [min(1.0, max(0.0, wanted - place)) for place in range(ladder.num_levels)]
    return [
        LevelScore(load, BASE + (1 - BASE) * skill, BASE, 1.0) for load, skill in zip(ladder.loads, skills, strict=True)
    ]
