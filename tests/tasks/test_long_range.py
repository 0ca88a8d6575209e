"""The long_range tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.tasks.base import IGNORE
from synthbench.tasks.long_range.distant_match import DistantMatch
from synthbench.tasks.long_range.long_copy import LongCopy
from synthbench.tasks.long_range.multihop import Multihop

SEEDS = st.integers(0, 2**32 - 1)
Check = Callable[..., None]


def copied(_task: Any, inputs: list[int]) -> list[set[int]]:
    return [{token} for token in inputs]


def first_in_the_middle(_task: Any, inputs: list[int]) -> list[set[int]]:
    targets = [{IGNORE}] * len(inputs)
    if inputs[0] != 0:
        targets[len(inputs) // 2] = {inputs[0]}
    return targets


def after_second_marker(task: Any, inputs: list[int]) -> list[set[int]]:
    third = len(inputs) // 3
    for index, marker in enumerate((task.vocabulary - 2, task.vocabulary - 1)):
        assert inputs.count(marker) == 1
        assert inputs.index(marker) in range(index * third, (index + 1) * third)
    answer = inputs[inputs.index(task.vocabulary - 1) + 1]
    return [{IGNORE}] * (len(inputs) - 1) + [{answer}]


REFERENCES = {"long_copy": copied, "distant_match": first_in_the_middle, "multihop": after_second_marker}


@given(seed=SEEDS, length=st.integers(1, 300), vocabulary=st.integers(2, 40))
def test_long_copy_asks_the_token_just_read(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int
) -> None:
    assert_targets_follow(LongCopy(vocabulary=vocabulary), copied, seed, length)


@given(seed=SEEDS, length=st.integers(2, 40), vocabulary=st.integers(2, 40))
def test_distant_match_asks_the_first_token_unless_it_is_zero(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int
) -> None:
    assert_targets_follow(DistantMatch(vocabulary=vocabulary), first_in_the_middle, seed, length)


@given(seed=SEEDS, length=st.integers(3, 40), vocabulary=st.integers(3, 40))
def test_multihop_asks_the_token_after_the_second_marker(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int
) -> None:
    assert_targets_follow(Multihop(vocabulary=vocabulary), after_second_marker, seed, length)


@pytest.mark.parametrize(("name", "reference"), REFERENCES.items(), ids=REFERENCES)
def test_worked_example_of_the_docstring_is_true(
    assert_example_holds: Check, name: str, reference: Callable[..., list[set[int]]]
) -> None:
    assert_example_holds(name, reference)
