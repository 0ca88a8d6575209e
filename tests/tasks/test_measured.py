"""Measurements of any task, against known values of some; and of strings of varying length on levels and beyond."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from synthbench.tasks import TASKS, Task, local_ceiling
from synthbench.tasks._measured import NUM_ANSWERS, large_sample
from synthbench.tasks._transduction import Transduction
from synthbench.tasks.recall.mqar import Mqar
from synthbench.tasks.state_tracking._strings import StringTask
from synthbench.tasks.state_tracking.parity_final import ParityFinal


@pytest.mark.parametrize("name", ["copy", "bigram", "noisy_copy", "retrieval"])
def test_what_needs_no_mixing_has_its_ceiling_for_a_local_one(name: str) -> None:
    task = TASKS[name]()

    assert local_ceiling(task, task.length).value == pytest.approx(task.ceiling(task.length).value, abs=1e-9)


@pytest.mark.parametrize("name", ["kv_recall", "induction", "pattern", "stack"])
def test_where_the_own_token_says_nothing_it_is_the_floor(name: str) -> None:
    task = TASKS[name]()
    local, floor = local_ceiling(task, task.length), task.floor(task.length)

    assert floor.value <= local.value <= floor.value + 4 * local.standard_error + 0.002


def test_the_first_token_of_a_word_is_its_own_product() -> None:
    """At the first of two positions the own token is the answer; at the second it says nothing."""
    task = TASKS["z60_words"]()
    local = local_ceiling(task, 2)

    assert abs(local.value - (1 + 1 / 60) / 2) <= 4 * local.standard_error + 0.01


def test_a_bottleneck_sees_the_last_token_only() -> None:
    task = TASKS["bottleneck_compression"]()

    assert local_ceiling(task, task.length) == task.floor(task.length)


@pytest.mark.parametrize(("unit", "num_sequences"), [(ParityFinal, NUM_ANSWERS), (Mqar, 4096)])
def test_long_levels_with_one_answer_are_measured_on_more_sequences(unit: type[Task], num_sequences: int) -> None:
    [level] = [level for level in unit.ladder(longest=128) if level.length == 128]

    assert len(large_sample(level.task, level.length, 0).targets) == num_sequences


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
