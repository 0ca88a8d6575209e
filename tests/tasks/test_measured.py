"""Measurements of any task, against known values of some."""

from typing import Any

import numpy as np
import pytest

from synthbench.tasks import TASKS, Batch, local_ceiling, shortcut_accuracies
from synthbench.tasks._measured import NUM_ANSWERS, measured_bases
from synthbench.tasks.recall.mqar import Mqar
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


def test_a_shortcuts_accuracy_is_the_share_of_right_answers() -> None:
    task = TASKS["parity_running"]()
    inputs, targets = task.sample(np.random.default_rng(0), 20_000, task.length)
    measured = shortcut_accuracies(task, task.length)

    assert measured.keys() == task.shortcuts(inputs).keys() != set()
    for name, predictions in task.shortcuts(inputs).items():
        assert measured[name].value == pytest.approx((predictions == targets).mean(), abs=0.01)


@pytest.mark.parametrize(
    ("unit", "length", "num_sequences"), [(ParityFinal, 128, [4096, NUM_ANSWERS] * 2), (Mqar, 128, [4096] * 2)]
)
def test_long_levels_with_one_answer_a_sequence_are_measured_on_more_sequences(
    unit: Any, length: int, num_sequences: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, sample = [], unit.sample

    def counted(task: Any, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        drawn.append(batch_size)
        batch: Batch = sample(task, rng, batch_size, length)
        return batch

    monkeypatch.setattr(unit, "sample", counted)
    [level] = [level for level in unit.ladder(longest=length) if level.length == length]
    measured_bases(level)

    assert drawn == num_sequences
