"""The arithmetic tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.tasks.arithmetic.addition import Addition
from synthbench.tasks.arithmetic.counting import Counting
from synthbench.tasks.arithmetic.modular import Modular
from synthbench.tasks.arithmetic.parity import Parity
from synthbench.tasks.base import IGNORE

SEEDS = st.integers(0, 2**32 - 1)
Check = Callable[..., None]


def last_only(inputs: list[int], *answers: int) -> list[set[int]]:
    return [{IGNORE}] * (len(inputs) - 1) + [set(answers)]


def oddness(_task: Any, inputs: list[int]) -> list[set[int]]:
    assert set(inputs) <= {0, 1}
    return last_only(inputs, inputs.count(1) % 2)


def folded_sum(task: Any, inputs: list[int]) -> list[set[int]]:
    assert set(inputs) <= {0, 1}
    return last_only(inputs, inputs.count(1) % task.vocabulary)


def residue(task: Any, inputs: list[int]) -> list[set[int]]:
    assert max(inputs) < task.modulus
    return last_only(inputs, sum(inputs) % task.modulus)


def zeros(task: Any, inputs: list[int]) -> list[set[int]]:
    assert max(inputs) < task.num_symbols
    return last_only(inputs, min(inputs.count(0), task.largest_count))


REFERENCES = {"parity": oddness, "addition": folded_sum, "modular": residue, "counting": zeros}


@given(seed=SEEDS, length=st.integers(1, 40))
def test_parity_asks_whether_ones_are_odd(assert_targets_follow: Check, seed: int, length: int) -> None:
    assert_targets_follow(Parity(), oddness, seed, length)


@given(seed=SEEDS, length=st.integers(1, 40), vocabulary=st.integers(2, 40))
def test_addition_asks_the_sum_of_bits(assert_targets_follow: Check, seed: int, length: int, vocabulary: int) -> None:
    assert_targets_follow(Addition(vocabulary=vocabulary), folded_sum, seed, length)


@given(seed=SEEDS, length=st.integers(1, 40), modulus=st.integers(2, 40))
def test_modular_asks_the_residue_of_the_sum(
    assert_targets_follow: Check, seed: int, length: int, modulus: int
) -> None:
    assert_targets_follow(Modular(modulus=modulus), residue, seed, length)


@given(seed=SEEDS, length=st.integers(1, 40), largest_count=st.integers(1, 40), num_symbols=st.integers(2, 12))
def test_counting_asks_the_number_of_zeros(
    assert_targets_follow: Check, seed: int, length: int, largest_count: int, num_symbols: int
) -> None:
    assert_targets_follow(Counting(largest_count=largest_count, num_symbols=num_symbols), zeros, seed, length)


@pytest.mark.parametrize(("name", "reference"), REFERENCES.items(), ids=REFERENCES)
def test_worked_example_of_the_docstring_is_true(
    assert_example_holds: Check, name: str, reference: Callable[..., list[set[int]]]
) -> None:
    assert_example_holds(name, reference)
