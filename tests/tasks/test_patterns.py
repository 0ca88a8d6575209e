"""The patterns tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.tasks.base import IGNORE
from synthbench.tasks.patterns.bigram import TABLE, Bigram
from synthbench.tasks.patterns.histogram import Histogram
from synthbench.tasks.patterns.majority import Majority

SEEDS = st.integers(0, 2**32 - 1)
Check = Callable[..., None]


def looked_up(_task: Any, inputs: list[int]) -> list[set[int]]:
    table = [int(entry) for entry in TABLE]
    return [{table[token]} for token in inputs]


def most_frequent(task: Any, inputs: list[int]) -> list[set[int]]:
    assert max(inputs) < task.num_symbols
    counts = Counter(inputs)
    answer = min(counts, key=lambda symbol: (-counts[symbol], symbol))
    return [{IGNORE}] * (len(inputs) - 1) + [{answer}]


def counts(task: Any, inputs: list[int]) -> list[set[int]]:
    assert max(inputs) < task.num_symbols
    return [
        {min(inputs.count(position), task.largest_count) if position < task.num_symbols else 0}
        for position in range(len(inputs))
    ]


REFERENCES = {"bigram": looked_up, "majority": most_frequent, "histogram": counts}


@given(seed=SEEDS, length=st.integers(1, 40))
def test_bigram_asks_the_entry_of_the_token_just_read(assert_targets_follow: Check, seed: int, length: int) -> None:
    assert_targets_follow(Bigram(), looked_up, seed, length)


def test_bigram_holds_the_table_that_numpy_draws_from_seed_zero() -> None:
    published = np.random.RandomState(0).randint(0, 32, size=32)

    np.testing.assert_array_equal(TABLE, published)


@given(seed=SEEDS, length=st.integers(1, 40), num_symbols=st.integers(2, 12))
def test_majority_asks_the_smallest_of_the_most_frequent(
    assert_targets_follow: Check, seed: int, length: int, num_symbols: int
) -> None:
    assert_targets_follow(Majority(num_symbols=num_symbols), most_frequent, seed, length)


@given(seed=SEEDS, more=st.integers(0, 40), largest_count=st.integers(1, 40), num_symbols=st.integers(2, 12))
def test_histogram_asks_the_count_of_each_symbol(
    assert_targets_follow: Check, seed: int, more: int, largest_count: int, num_symbols: int
) -> None:
    task = Histogram(largest_count=largest_count, num_symbols=num_symbols)
    assert_targets_follow(task, counts, seed, num_symbols + more)


@pytest.mark.parametrize(("name", "reference"), REFERENCES.items(), ids=REFERENCES)
def test_worked_example_of_the_docstring_is_true(
    assert_example_holds: Check, name: str, reference: Callable[..., list[set[int]]]
) -> None:
    assert_example_holds(name, reference)
