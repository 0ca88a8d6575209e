"""The basic tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.tasks.basic.copy import Copy
from synthbench.tasks.basic.reverse import Reverse
from synthbench.tasks.basic.sort import Sort

SEEDS = st.integers(0, 2**32 - 1)
Check = Callable[..., None]


def copied(_task: Any, inputs: list[int]) -> list[set[int]]:
    return [{token} for token in inputs]


def reversed_(_task: Any, inputs: list[int]) -> list[set[int]]:
    return [{token} for token in reversed(inputs)]


def sorted_(_task: Any, inputs: list[int]) -> list[set[int]]:
    return [{token} for token in sorted(inputs)]


REFERENCES = {"copy": copied, "reverse": reversed_, "sort": sorted_}


@given(seed=SEEDS, length=st.integers(1, 40), vocabulary=st.integers(2, 40))
def test_copy_asks_the_token_just_read(assert_targets_follow: Check, seed: int, length: int, vocabulary: int) -> None:
    assert_targets_follow(Copy(vocabulary=vocabulary), copied, seed, length)


@given(seed=SEEDS, length=st.integers(1, 40), vocabulary=st.integers(2, 40))
def test_reverse_asks_the_tokens_backwards(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int
) -> None:
    assert_targets_follow(Reverse(vocabulary=vocabulary), reversed_, seed, length)


@given(seed=SEEDS, length=st.integers(1, 40), vocabulary=st.integers(2, 40))
def test_sort_asks_the_tokens_in_order(assert_targets_follow: Check, seed: int, length: int, vocabulary: int) -> None:
    assert_targets_follow(Sort(vocabulary=vocabulary), sorted_, seed, length)


@pytest.mark.parametrize(("name", "reference"), REFERENCES.items(), ids=REFERENCES)
def test_worked_example_of_the_docstring_is_true(
    assert_example_holds: Check, name: str, reference: Callable[..., list[set[int]]]
) -> None:
    assert_example_holds(name, reference)
