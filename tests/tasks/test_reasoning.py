"""The reasoning tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.tasks.base import IGNORE
from synthbench.tasks.reasoning.induction import Induction
from synthbench.tasks.reasoning.pattern import Pattern
from synthbench.tasks.reasoning.stack import Stack

SEEDS = st.integers(0, 2**32 - 1)
Check = Callable[..., None]


def values_at_pops(task: Any, inputs: list[int]) -> list[set[int]]:
    push, pop = task.vocabulary - 2, task.vocabulary - 1
    depth, targets = 0, []
    for token in inputs:
        depth += (token == push) - (token == pop)
        assert depth >= 0, "a POP of an empty stack"
        targets.append(set(range(push)) if token == pop else {0})
    return targets


def successors(_task: Any, inputs: list[int]) -> list[set[int]]:
    copies = [position for position in range(1, len(inputs) // 2) if inputs[position] == inputs[-2]]
    assert copies
    return [{IGNORE}] * (len(inputs) - 1) + [{inputs[position + 1] for position in copies}]


def next_of_period(task: Any, inputs: list[int]) -> list[set[int]]:
    period = inputs[: task.period]
    assert inputs == [period[position % task.period] for position in range(len(inputs))]
    return [{period[(position + 1) % task.period]} for position in range(len(inputs))]


REFERENCES = {"stack": values_at_pops, "induction": successors, "pattern": next_of_period}


@given(
    seed=SEEDS,
    length=st.integers(1, 40),
    vocabulary=st.integers(3, 40),
    rates=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_stack_asks_a_value_at_each_pop_and_zero_elsewhere(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int, rates: tuple[float, float]
) -> None:
    task = Stack(vocabulary=vocabulary, pop_rate=rates[0], push_rate=rates[1])
    assert_targets_follow(task, values_at_pops, seed, length)


def test_stack_takes_the_value_pushed_last() -> None:
    task, length = Stack(vocabulary=1000, pop_rate=0.4), 32
    inputs, targets = task.sample(np.random.default_rng(0), 64, length)
    # The values are in neither array: the draws of the sampler are repeated up to them.
    again = np.random.default_rng(0)
    again.integers(998, size=(length, 64))
    pushed = again.integers(998, size=(length, 64)).T
    for tokens, answers, values in zip(inputs.tolist(), targets.tolist(), pushed.tolist(), strict=True):
        stack: list[int] = []
        for token, answer, value in zip(tokens, answers, values, strict=True):
            if token == 998:
                stack.append(value)
            assert answer == (stack.pop() if token == 999 else 0)


def test_stack_pops_as_often_as_published() -> None:
    inputs, _ = Stack().sample(np.random.default_rng(0), 20_000, 32)
    rate = (inputs == 31).mean(axis=1)

    assert abs(rate.mean() - 0.243258) < 4 * rate.std() / 20_000**0.5


@given(seed=SEEDS, length=st.integers(5, 80), vocabulary=st.integers(2, 80))
def test_induction_asks_a_successor_of_a_copy_of_the_trigger(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int
) -> None:
    assert_targets_follow(Induction(vocabulary=vocabulary), successors, seed, length)


@given(seed=SEEDS, period=st.integers(1, 12), more=st.integers(0, 40), vocabulary=st.integers(2, 40))
def test_pattern_asks_the_next_token_of_the_period(
    assert_targets_follow: Check, seed: int, period: int, more: int, vocabulary: int
) -> None:
    assert_targets_follow(Pattern(vocabulary=vocabulary, period=period), next_of_period, seed, period + more)


@pytest.mark.parametrize(("name", "reference"), REFERENCES.items(), ids=REFERENCES)
def test_worked_example_of_the_docstring_is_true(
    assert_example_holds: Check, name: str, reference: Callable[..., list[set[int]]]
) -> None:
    assert_example_holds(name, reference)
