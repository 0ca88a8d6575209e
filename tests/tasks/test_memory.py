"""The memory tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.errors import UsageError
from synthbench.tasks.base import IGNORE
from synthbench.tasks.memory.first_token import FirstToken
from synthbench.tasks.memory.kv_recall import KvRecall
from synthbench.tasks.memory.retrieval import Retrieval
from synthbench.tasks.memory.selective_copy import SelectiveCopy

SEEDS = st.integers(0, 2**32 - 1)
Check = Callable[..., None]


def last_only(inputs: list[int], *answers: int) -> list[set[int]]:
    return [{IGNORE}] * (len(inputs) - 1) + [set(answers)]


def first(_task: Any, inputs: list[int]) -> list[set[int]]:
    return last_only(inputs, inputs[0])


def needle(task: Any, inputs: list[int]) -> list[set[int]]:
    assert inputs.count(task.vocabulary - 1) == 1
    assert inputs.index(task.vocabulary - 1) < len(inputs) - 2
    assert inputs.index(task.vocabulary - 2) == len(inputs) - 1
    return last_only(inputs, task.vocabulary - 1)


def value(task: Any, inputs: list[int]) -> list[set[int]]:
    *pairs, separator, asked = inputs
    keys, values = pairs[0::2], pairs[1::2]
    assert len(set(keys)) == len(keys) == len(values)
    assert separator == task.vocabulary - 1
    assert separator not in pairs
    return last_only(inputs, values[keys.index(asked)])


def marked(task: Any, inputs: list[int]) -> list[set[int]]:
    half, marker = len(inputs) // 2, task.vocabulary - 1
    marks = [position for position, token in enumerate(inputs) if token == marker]
    assert len(marks) == task.num_marks
    targets = [{0}] * len(inputs)
    for index, mark in enumerate(marks):
        assert mark < half
        if mark == half - 1:
            continue
        # What the next marker overwrote may have been any token.
        is_hidden = inputs[mark + 1] == marker
        targets[half + index] = set(range(marker)) if is_hidden else {inputs[mark + 1]}
    return targets


REFERENCES = {"first_token": first, "retrieval": needle, "kv_recall": value, "selective_copy": marked}


@given(seed=SEEDS, length=st.integers(2, 40), vocabulary=st.integers(2, 40))
def test_first_token_asks_the_first_token(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int
) -> None:
    assert_targets_follow(FirstToken(vocabulary=vocabulary), first, seed, length)


@given(seed=SEEDS, length=st.integers(3, 40), vocabulary=st.integers(3, 40))
def test_retrieval_hides_one_needle_and_asks_it(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int
) -> None:
    assert_targets_follow(Retrieval(vocabulary=vocabulary), needle, seed, length)


@given(seed=SEEDS, num_pairs=st.integers(1, 20), spare=st.integers(0, 40))
def test_kv_recall_asks_the_value_of_a_key(assert_targets_follow: Check, seed: int, num_pairs: int, spare: int) -> None:
    task = KvRecall(vocabulary=max(3, num_pairs + 1 + spare))
    assert_targets_follow(task, value, seed, 2 * num_pairs + 2)


@pytest.mark.parametrize(("length", "reason"), [(23, "even"), (130, "63 of them"), (2, "4 and more")])
def test_kv_recall_refuses_odd_lengths_and_more_pairs_than_keys(length: int, reason: str) -> None:
    for call in (lambda: KvRecall().sample(np.random.default_rng(0), 1, length), lambda: KvRecall().floor(length)):
        with pytest.raises(UsageError, match=reason):
            call()


@given(seed=SEEDS, num_marks=st.integers(1, 10), more=st.integers(0, 20), vocabulary=st.integers(2, 40))
def test_selective_copy_asks_what_followed_the_markers(
    assert_targets_follow: Check, seed: int, num_marks: int, more: int, vocabulary: int
) -> None:
    task = SelectiveCopy(vocabulary=vocabulary, num_marks=num_marks)
    assert_targets_follow(task, marked, seed, 2 * num_marks + more)


def test_selective_copy_hides_as_many_answers_as_adjacent_marks_predict() -> None:
    inputs, _ = SelectiveCopy().sample(np.random.default_rng(0), 20_000, 64)
    is_mark = inputs == 31
    num_hidden = (is_mark[:, :-1] & is_mark[:, 1:]).sum(axis=1)

    assert abs(num_hidden.mean() - 1.75) < 4 * num_hidden.std() / 20_000**0.5


@pytest.mark.parametrize(("name", "reference"), REFERENCES.items(), ids=REFERENCES)
def test_worked_example_of_the_docstring_is_true(
    assert_example_holds: Check, name: str, reference: Callable[..., list[set[int]]]
) -> None:
    assert_example_holds(name, reference)
