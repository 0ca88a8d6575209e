"""Helpers of naive forms of tasks, with which tests compute their answers a second time."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from synthbench.tasks.base import IGNORE

SEEDS = st.integers(0, 2**32 - 1)

Tokens = Any  # an array of int64; NumPy types what is indexed or computed from one as Any
Reference = Callable[[Any, list[int]], list[set[int]]]
"""A naive form of a task: the targets that each position may have, given the inputs."""
Oracle = Callable[[Any, Tokens], Tokens]
"""Solves a task: predictions [batch, length] from the inputs, where those at t may use the inputs 0..t only."""


class Known(NamedTuple):
    """A task's answers in a naive form, which takes every option into account."""

    reference: Reference
    oracle: Oracle | None = None
    """By default the reference, which then must know the answer at the end of each prefix."""
    is_padded: bool = False
    """True if answers are followed by padding, the last id."""


def targets_from(inputs: list[int], begin: int, answers: list[int]) -> list[set[int]]:
    """The targets of a sequence that asks for answers from a position on, one after the other, up to its end."""
    targets = [{IGNORE}] * begin + [{answer} for answer in answers] + [{IGNORE}] * len(inputs)
    return targets[: len(inputs)]


def transduced(task: Any, inputs: list[int], size: int, answer: list[int]) -> list[set[int]]:
    """The targets of a string of a size, of which a separator, blanks for the answer, and padding must follow."""
    *_, separator, blank, padding = range(task.vocab_size)
    following = [separator] + [blank] * len(answer) + [padding] * len(inputs)
    assert size >= task.shortest
    assert max(inputs[:size]) < separator
    assert inputs[size:] == following[: len(inputs) - size]
    return targets_from(inputs, size + 1, answer)


def rearranged(answer_to: Callable[[list[int]], list[int]]) -> Reference:
    """The targets of a task that asks for what becomes of a string of symbols."""

    def reference(task: Any, inputs: list[int]) -> list[set[int]]:
        size = inputs.index(task.num_symbols)
        return transduced(task, inputs, size, answer_to(inputs[:size]))

    return reference


def assert_shares(outcomes: Iterable[Any], expected: Mapping[Any, float]) -> None:
    """No other outcomes were drawn than expected, and each as often as its probability says."""
    counts = Counter(outcomes)
    total = counts.total()
    assert set(counts) <= set(expected)
    for outcome, share in expected.items():
        assert abs(counts[outcome] / total - share) < 4.5 * (share * (1 - share) / total) ** 0.5


def last_only(inputs: list[int], *answers: int) -> list[set[int]]:
    """The targets of a sequence that asks at its end, where any of the answers is right."""
    return [{IGNORE}] * (len(inputs) - 1) + [set(answers)]


def value_of(expression: list[int], modulus: int, signs: str) -> int:
    """Compute an expression of digits below the modulus, and of signs with the ids after them."""
    text = "".join(str(token) if token < modulus else signs[token - modulus] for token in expression)
    value: int = eval(text)  # noqa: S307  digits and signs only
    return value % modulus


def oracle_of(reference: Reference) -> Oracle:
    """An oracle that asks the reference for the last target of each prefix; a prefix may be no sequence of the task.

    Where the whole sequence has no target, no prefix is asked, since no prediction is compared.
    """
    no_sequence = suppress(AssertionError, IndexError, KeyError, TypeError, ValueError)

    def oracle(task: Any, inputs: Tokens) -> Tokens:
        predictions = np.zeros_like(inputs)
        for row, sequence in enumerate(inputs.tolist()):
            asked = list(range(len(sequence)))
            with no_sequence:
                whole = reference(task, sequence)
                asked = [position for position in asked if whole[position] != {IGNORE}]
            for position in asked:
                with no_sequence:
                    predictions[row, position] = min(reference(task, sequence[: position + 1])[position])
        return predictions

    return oracle
