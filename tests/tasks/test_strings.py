"""Tasks of strings of varying length: levels, and tests out of range, have longer ones than what stands below."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from synthbench.tasks import TASKS
from synthbench.tasks._transduction import Transduction
from synthbench.tasks.state_tracking._strings import StringTask

NAMES = [name for name, unit in TASKS.items() if issubclass(unit, Transduction | StringTask)]


def extremes(task: Any, length: int) -> tuple[int, int]:
    """The fewest and the most symbols of a string, of many."""
    inputs = task.sample(np.random.default_rng(0), 4000, length).inputs
    is_end = inputs == (task.separator if isinstance(task, Transduction) else task.num_symbols)
    sizes = is_end.argmax(axis=1) // (2 if task.name == "missing_duplicate" else 1)
    return int(sizes.min()), int(sizes.max())


@pytest.mark.parametrize("name", [name for name in NAMES if TASKS[name].levels])
def test_strings_of_a_level_are_longer_than_those_of_the_level_below(name: str) -> None:
    for below, level in pairwise(TASKS[name].ladder(longest=64)):
        fewest, most = extremes(level.task, level.length)

        assert below.load < fewest <= below.load + 2  # expressions have odd lengths
        assert most == level.load


@pytest.mark.parametrize("factor", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_strings_out_of_range_are_longer_than_half_the_factor_allows(name: str, factor: int) -> None:
    trained = TASKS[name]()
    _, longest = extremes(trained, trained.length)
    fewest, most = extremes(*trained.stretched(trained.length, factor))

    assert factor // 2 * longest < fewest <= factor // 2 * longest + 2
    assert factor * longest - 1 <= most <= factor * longest
