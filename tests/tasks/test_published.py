"""The tasks of the paper, of seven categories: their answers a second time, and the published numbers."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from synthbench.tasks.base import IGNORE, TASKS
from synthbench.tasks.patterns.bigram import TABLE
from synthbench.tasks.reasoning.stack import Stack
from synthbench.tasks.robustness.compression import Compression
from tests.tasks._known import Known, Oracle, Tokens, last_only

PUBLISHED = pd.read_csv(Path(__file__).parent / "published_bounds.csv", index_col="task")

# References: the targets that each position may have.


def folded_sum(task: Any, inputs: list[int]) -> list[set[int]]:
    assert set(inputs) <= {0, 1}
    return last_only(inputs, inputs.count(1) % task.vocabulary)


def residue(task: Any, inputs: list[int]) -> list[set[int]]:
    assert max(inputs) < getattr(task, "modulus", 2)
    return last_only(inputs, sum(inputs) % getattr(task, "modulus", 2))


def number_of_zeros(task: Any, inputs: list[int]) -> list[set[int]]:
    assert max(inputs) < task.num_symbols
    return last_only(inputs, min(inputs.count(0), task.largest_count))


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
    return last_only(inputs, inputs[inputs.index(task.vocabulary - 1) + 1])


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


def most_frequent(task: Any, inputs: list[int]) -> list[set[int]]:
    assert max(inputs) < task.num_symbols
    return last_only(inputs, min(set(inputs), key=lambda symbol: (-inputs.count(symbol), symbol)))


def counts(task: Any, inputs: list[int]) -> list[set[int]]:
    assert max(inputs) < task.num_symbols
    return [
        {min(inputs.count(position), task.largest_count) if position < task.num_symbols else 0}
        for position in range(len(inputs))
    ]


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
    return last_only(inputs, *(inputs[position + 1] for position in copies))


def next_of_period(task: Any, inputs: list[int]) -> list[set[int]]:
    period = inputs[: task.period]
    assert inputs == [period[position % task.period] for position in range(len(inputs))]
    return [{period[(position + 1) % task.period]} for position in range(len(inputs))]


def copied_in_the_first_half(task: Any, inputs: list[int]) -> list[set[int]]:
    half = len(inputs) // 2
    assert task.vocabulary - 1 not in inputs[:half]
    return [{token} for token in inputs[:half]] + [{0}] * (len(inputs) - half)


def runs(_task: Any, inputs: list[int]) -> list[set[int]]:
    values = [token for token, _ in groupby(inputs)]
    return [{value} for value in values] + [{0}] * (len(inputs) - len(values))


# Oracles: the best answers from the prefixes.

Answer = Callable[[Any, Tokens, int], Tokens]
"""Predicts the target of the last position of the prefixes of sequences of a length."""


def at_each(answer: Answer) -> Oracle:
    """An oracle that answers from each prefix alone."""

    def oracle(task: Any, inputs: Tokens) -> Tokens:
        length = inputs.shape[1]
        prefixes = (inputs[:, :end] for end in range(1, length + 1))
        return np.stack([answer(task, prefix, length) for prefix in prefixes], axis=1)

    return oracle


def backwards(_task: Any, inputs: Tokens) -> Tokens:
    places = np.arange(inputs.shape[1])
    return np.where(places >= places[::-1], inputs[:, ::-1], 0)


def one_period_back(task: Any, inputs: Tokens) -> Tokens:
    return np.pad(inputs, ((0, 0), (task.period - 1, 0)))[:, : inputs.shape[1]]


def common_successor(_task: Any, inputs: Tokens) -> Tokens:
    answers = []
    for sequence in inputs.tolist():
        followers = [sequence[place + 1] for place in range(1, len(sequence) // 2) if sequence[place] == sequence[-2]]
        answers.append(Counter(followers).most_common(1)[0][0] if followers else 0)
    return np.broadcast_to(np.array(answers)[:, None], inputs.shape)


def order_statistic(task: Any, prefix: Tokens, length: int) -> Tokens:
    num_seen = prefix.shape[1]
    tokens = np.arange(task.vocabulary)
    num_below = (prefix[:, :, None] <= tokens).sum(axis=1)
    at_most = binom.sf(num_seen - num_below - 1, length - num_seen, (tokens + 1) / task.vocabulary)
    return np.diff(at_most, axis=1, prepend=0).argmax(axis=1)


def after_mark(task: Any, prefix: Tokens, length: int) -> Tokens:
    asked, marker = prefix.shape[1] - 1 - length // 2, task.vocabulary - 1
    answers = np.zeros(len(prefix), dtype=np.int64)
    if not 0 <= asked < task.num_marks:
        return answers
    for row, sequence in enumerate(prefix.tolist()):
        half = sequence[: length // 2]
        marks = [position for position, token in enumerate(half) if token == marker]
        following = half[marks[asked] + 1 : marks[asked] + 2] if asked < len(marks) else []
        answers[row] = 0 if following in ([], [marker]) else following[0]
    return answers


def expected_count(task: Any, prefix: Tokens, length: int) -> Tokens:
    symbol = prefix.shape[1] - 1
    if symbol >= task.num_symbols:
        return np.zeros(len(prefix), dtype=np.int64)
    unseen = np.arange(length - prefix.shape[1] + 1)
    guesses = []
    for num_seen in (prefix == symbol).sum(axis=1).tolist():
        likely = np.minimum(num_seen + unseen, task.largest_count)
        guesses.append(np.bincount(likely, weights=binom.pmf(unseen, unseen[-1], 1 / task.num_symbols)).argmax())
    return np.array(guesses)


@cache
def likeliest_run(task: Compression, ahead: int, lasted: int, current: int, num_left: int) -> int:
    """The likeliest value of the run so many ahead, 0 if it never comes: all futures are followed, values and all."""
    new_value = 1 / task.vocabulary
    new_length = 1 / task.longest_run
    # left[u]: probability that u more tokens of the run as drawn are to come, after so many equal tokens.
    left = np.full(task.longest_run, new_length)
    for _ in range(lasted - 1):
        left = np.append(left[1:], 0) + left[0] * new_value * new_length
        left /= left.sum()
    # state[k, u, v]: k new runs so far, u tokens of the run as drawn to come, v the value of the latest.
    state = np.zeros((ahead + 1, task.longest_run, task.vocabulary))
    state[0, :, current] = left
    answer = np.zeros(task.vocabulary)
    for _ in range(num_left):
        drawn = state[:, 0] * new_value * new_length
        step = np.zeros_like(state)
        step[:, :-1] = state[:, 1:]
        step += drawn[:, None]
        # A new value is any but the old one.
        step[1:] += (drawn.sum(axis=1, keepdims=True) - drawn)[:-1, None]
        answer += step[ahead].sum(axis=0)
        step[ahead] = 0
        state = step
    answer[0] += state.sum()
    return int(answer.argmax())


def likeliest_runs(task: Any, prefix: Tokens, length: int) -> Tokens:
    num_seen = prefix.shape[1]
    guesses = []
    for row in prefix.tolist():
        num_runs = sum(1 for _ in groupby(row))
        lasted = next((back for back in range(1, num_seen) if row[-1 - back] != row[-1]), num_seen)
        ahead = num_seen - num_runs
        # Tokens other than 0 are alike: token 1 stands for all of them, so that few futures are followed.
        alike = min(row[-1], 1)
        guess = alike if ahead == 0 else likeliest_run(task, ahead, lasted, alike, length - num_seen)
        guesses.append(row[-1] if guess == alike else guess)
    return np.array(guesses)


KNOWN = {
    "addition": Known(folded_sum),
    "counting": Known(number_of_zeros),
    "modular": Known(residue),
    "parity": Known(residue),
    "copy": Known(copied),
    "reverse": Known(lambda _, inputs: [{token} for token in reversed(inputs)], backwards),
    "sort": Known(lambda _, inputs: [{token} for token in sorted(inputs)], at_each(order_statistic)),
    "distant_match": Known(first_in_the_middle, lambda _, inputs: np.broadcast_to(inputs[:, :1], inputs.shape)),
    "long_copy": Known(copied),
    "multihop": Known(after_second_marker),
    "first_token": Known(lambda _, inputs: last_only(inputs, inputs[0])),
    "kv_recall": Known(value),
    "retrieval": Known(needle),
    "selective_copy": Known(marked, at_each(after_mark)),
    "bigram": Known(lambda _, inputs: [{int(TABLE[token])} for token in inputs]),
    "histogram": Known(counts, at_each(expected_count)),
    "majority": Known(most_frequent),
    "induction": Known(successors, common_successor),
    "pattern": Known(next_of_period, one_period_back),
    "stack": Known(values_at_pops, lambda _, inputs: np.zeros_like(inputs)),
    "compression": Known(runs, at_each(likeliest_runs)),
    "noisy_copy": Known(copied_in_the_first_half, lambda _, x: x * (np.arange(x.shape[1]) < x.shape[1] // 2)),
}


def test_every_task_of_the_paper_has_published_bounds() -> None:
    assert sorted(KNOWN) == sorted(PUBLISHED.index) == [name for name in TASKS if TASKS[name].source == "slay2026"]


@pytest.mark.parametrize("name", sorted(PUBLISHED.index))
def test_bounds_agree_with_the_published_ones(name: str) -> None:
    task, row = TASKS[name](), PUBLISHED.loc[name]
    floor, ceiling = task.floor(task.length), task.ceiling(task.length)
    spread = np.hypot(row["ceiling_standard_error"], ceiling.standard_error)

    assert (task.length, task.vocab_size) == (row["length"], row["vocab_size"])
    assert abs(floor.value - row["floor"]) < 1e-6
    assert abs(ceiling.value - row["ceiling"]) < 1e-6 + 4 * spread
    assert floor.kind == ceiling.kind == "exact"
    assert ceiling.standard_error <= 3e-4


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
