"""The robustness tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthbench.tasks.robustness.compression import Compression
from synthbench.tasks.robustness.noisy_copy import NoisyCopy

SEEDS = st.integers(0, 2**32 - 1)
Check = Callable[..., None]


def copied_in_the_first_half(task: Any, inputs: list[int]) -> list[set[int]]:
    half = len(inputs) // 2
    assert task.vocabulary - 1 not in inputs[:half]
    return [{token} for token in inputs[:half]] + [{0}] * (len(inputs) - half)


def runs(_task: Any, inputs: list[int]) -> list[set[int]]:
    values = [token for token, _ in groupby(inputs)]
    return [{value} for value in values] + [{0}] * (len(inputs) - len(values))


REFERENCES = {"noisy_copy": copied_in_the_first_half, "compression": runs}


@given(seed=SEEDS, length=st.integers(2, 40), vocabulary=st.integers(2, 40), noise_rate=st.floats(0, 1))
def test_noisy_copy_asks_the_first_half(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int, noise_rate: float
) -> None:
    task = NoisyCopy(vocabulary=vocabulary, noise_rate=noise_rate)
    assert_targets_follow(task, copied_in_the_first_half, seed, length)


def test_noisy_copy_covers_three_tenths_of_the_second_half() -> None:
    inputs, _ = NoisyCopy().sample(np.random.default_rng(0), 4000, 64)
    rate = (inputs[:, 32:] == 31).mean(axis=1)

    assert abs(rate.mean() - 0.3) < 4 * rate.std() / 4000**0.5


@given(seed=SEEDS, length=st.integers(1, 40), vocabulary=st.integers(2, 40), longest_run=st.integers(1, 12))
def test_compression_asks_the_values_of_the_runs(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int, longest_run: int
) -> None:
    assert_targets_follow(Compression(vocabulary=vocabulary, longest_run=longest_run), runs, seed, length)


def test_compression_has_as_many_runs_as_published() -> None:
    inputs, _ = Compression().sample(np.random.default_rng(0), 20_000, 32)
    num_runs = 1 + (inputs[:, 1:] != inputs[:, :-1]).sum(axis=1)

    assert abs(num_runs.mean() - 15.375) < 4 * num_runs.std() / 20_000**0.5


@pytest.mark.parametrize(("name", "reference"), REFERENCES.items(), ids=REFERENCES)
def test_worked_example_of_the_docstring_is_true(
    assert_example_holds: Check, name: str, reference: Callable[..., list[set[int]]]
) -> None:
    assert_example_holds(name, reference)
