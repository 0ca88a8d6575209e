"""Floors and ceilings: against the published numbers, and against explicit predictors scored on fresh samples."""

import csv
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from synthbench.tasks.base import IGNORE, TASKS, Task
from synthbench.tasks.patterns.bigram import TABLE
from synthbench.tasks.robustness.compression import Compression

PUBLISHED = {
    row["task"]: row
    for row in csv.DictReader((Path(__file__).parent / "published_bounds.csv").read_text("utf-8").splitlines())
}
Predictions = Any  # an array of int64; NumPy types what is indexed or computed from one as Any
Oracle = Callable[[Any, Predictions, int], Predictions]
"""Predicts the target of the last position of the prefixes of sequences of a length."""


def echo(_task: Any, prefix: Predictions, _length: int) -> Predictions:
    return prefix[:, -1]


def first(_task: Any, prefix: Predictions, _length: int) -> Predictions:
    return prefix[:, 0]


def total(task: Any, prefix: Predictions, _length: int) -> Predictions:
    return prefix.sum(axis=1) % task.vocabulary


def parity(_task: Any, prefix: Predictions, _length: int) -> Predictions:
    return prefix.sum(axis=1) % 2


def residue(task: Any, prefix: Predictions, _length: int) -> Predictions:
    return prefix.sum(axis=1) % task.modulus


def zeros(task: Any, prefix: Predictions, _length: int) -> Predictions:
    return np.minimum((prefix == 0).sum(axis=1), task.largest_count)


def backwards(_task: Any, prefix: Predictions, length: int) -> Predictions:
    asked = length - prefix.shape[1]
    return prefix[:, asked] if asked < prefix.shape[1] else np.zeros_like(prefix[:, 0])


def order_statistic(task: Any, prefix: Predictions, length: int) -> Predictions:
    num_seen = prefix.shape[1]
    tokens = np.arange(task.vocabulary)
    num_below = (prefix[:, :, None] <= tokens).sum(axis=1)
    at_most = binom.sf(num_seen - num_below - 1, length - num_seen, (tokens + 1) / task.vocabulary)
    return np.diff(at_most, axis=1, prepend=0).argmax(axis=1)


def needle(task: Any, prefix: Predictions, _length: int) -> Predictions:
    return np.full(len(prefix), task.vocabulary - 1)


def value(_task: Any, prefix: Predictions, _length: int) -> Predictions:
    return np.array([row[2 * row[0:-2:2].index(row[-1]) + 1] for row in prefix.tolist()])


def after_mark(task: Any, prefix: Predictions, length: int) -> Predictions:
    asked, marker = prefix.shape[1] - 1 - length // 2, task.vocabulary - 1
    answers = np.zeros(len(prefix), dtype=np.int64)
    if not 0 <= asked < task.num_marks:
        return answers
    for row, sequence in enumerate(prefix.tolist()):
        half = sequence[: length // 2]
        mark = [position for position, token in enumerate(half) if token == marker][asked]
        answers[row] = 0 if half[mark + 1 : mark + 2] in ([], [marker]) else half[mark + 1]
    return answers


def after_second_marker(task: Any, prefix: Predictions, _length: int) -> Predictions:
    return np.array([row[row.index(task.vocabulary - 1) + 1] for row in prefix.tolist()])


def nothing(_task: Any, prefix: Predictions, _length: int) -> Predictions:
    return np.zeros(len(prefix), dtype=np.int64)


def common_successor(_task: Any, prefix: Predictions, length: int) -> Predictions:
    guesses = []
    for row in prefix.tolist():
        followers = [row[position + 1] for position in range(1, length // 2) if row[position] == row[-2]]
        guesses.append(Counter(followers).most_common(1)[0][0])
    return np.array(guesses)


def one_period_back(task: Any, prefix: Predictions, _length: int) -> Predictions:
    asked = prefix.shape[1] - task.period
    return prefix[:, asked] if asked >= 0 else np.zeros_like(prefix[:, 0])


def looked_up(_task: Any, prefix: Predictions, _length: int) -> Predictions:
    return np.array([int(TABLE[token]) for token in prefix[:, -1]])


def most_frequent(_task: Any, prefix: Predictions, _length: int) -> Predictions:
    return np.array([min(Counter(row), key=lambda token: (-row.count(token), token)) for row in prefix.tolist()])


def first_half(_task: Any, prefix: Predictions, length: int) -> Predictions:
    return prefix[:, -1] * (prefix.shape[1] <= length // 2)


def expected_count(task: Any, prefix: Predictions, length: int) -> Predictions:
    symbol = prefix.shape[1] - 1
    if symbol >= task.num_symbols:
        return np.zeros(len(prefix), dtype=np.int64)
    unseen = np.arange(length - prefix.shape[1] + 1)
    guesses = []
    for num_seen in (prefix == symbol).sum(axis=1).tolist():
        counts = np.minimum(num_seen + unseen, task.largest_count)
        guesses.append(np.bincount(counts, weights=binom.pmf(unseen, unseen[-1], 1 / task.num_symbols)).argmax())
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


def likeliest_runs(task: Any, prefix: Predictions, length: int) -> Predictions:
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


ORACLES: dict[str, Oracle] = {
    "addition": total,
    "bigram": looked_up,
    "compression": likeliest_runs,
    "copy": echo,
    "counting": zeros,
    "distant_match": first,
    "first_token": first,
    "histogram": expected_count,
    "induction": common_successor,
    "kv_recall": value,
    "long_copy": echo,
    "majority": most_frequent,
    "modular": residue,
    "multihop": after_second_marker,
    "noisy_copy": first_half,
    "parity": parity,
    "pattern": one_period_back,
    "retrieval": needle,
    "reverse": backwards,
    "selective_copy": after_mark,
    "sort": order_statistic,
    "stack": nothing,
}


def best_count(task: Any, length: int) -> int:
    counts = np.minimum(np.arange(length + 1), task.largest_count)
    return int(np.bincount(counts, weights=binom.pmf(np.arange(length + 1), length, 1 / task.num_symbols)).argmax())


def best_order_statistics(task: Any, length: int) -> list[int]:
    tokens = np.arange(task.vocabulary)
    at_most = [binom.sf(position, length, (tokens + 1) / task.vocabulary) for position in range(length)]
    return [int(np.diff(row, prepend=0).argmax()) for row in at_most]


CONSTANTS: dict[str, Callable[[Any, int], int | list[int]]] = {
    "addition": lambda task, length: int(
        np.bincount(
            np.arange(length + 1) % task.vocabulary, weights=binom.pmf(np.arange(length + 1), length, 0.5)
        ).argmax()
    ),
    "bigram": lambda _task, _length: 24,
    "counting": best_count,
    "distant_match": lambda _task, _length: 1,
    "histogram": lambda task, length: [
        best_count(task, length) if symbol < task.num_symbols else 0 for symbol in range(length)
    ],
    "retrieval": lambda task, _length: task.vocabulary - 1,
    "sort": best_order_statistics,
}
"""The best constant of each position; 0 where a task is not named."""

OTHERS: list[tuple[str, dict[str, Any], int]] = [
    ("addition", {"vocabulary": 3}, 7),
    ("bigram", {}, 5),
    ("compression", {"vocabulary": 3, "longest_run": 2}, 13),
    ("compression", {"vocabulary": 2, "longest_run": 5}, 12),
    ("copy", {"vocabulary": 5}, 7),
    ("counting", {"largest_count": 2, "num_symbols": 3}, 9),
    ("distant_match", {"vocabulary": 4}, 9),
    ("first_token", {"vocabulary": 4}, 2),
    ("histogram", {"largest_count": 3, "num_symbols": 4}, 9),
    ("induction", {"vocabulary": 3}, 17),
    ("induction", {"vocabulary": 8}, 40),
    ("kv_recall", {"vocabulary": 8}, 14),
    ("long_copy", {"vocabulary": 3}, 9),
    ("majority", {"num_symbols": 3}, 8),
    ("majority", {"num_symbols": 9}, 5),
    ("modular", {"modulus": 3}, 4),
    ("multihop", {"vocabulary": 5}, 11),
    ("noisy_copy", {"vocabulary": 5, "noise_rate": 0.5}, 9),
    ("parity", {}, 1),
    ("pattern", {"vocabulary": 3, "period": 6}, 9),
    ("retrieval", {"vocabulary": 4}, 5),
    ("reverse", {"vocabulary": 4}, 7),
    ("selective_copy", {"vocabulary": 4, "num_marks": 5}, 15),
    ("sort", {"vocabulary": 5}, 7),
    ("stack", {"vocabulary": 5, "pop_rate": 0.6, "push_rate": 0.7}, 9),
]
CASES = [(TASKS[name](), TASKS[name].length) for name in ORACLES] + [
    (TASKS[name](**knobs), length) for name, knobs, length in OTHERS
]
IDS = [f"{task.name}-{length}" for task, length in CASES]


def assert_accuracy(
    is_right: np.ndarray[Any, np.dtype[np.bool_]], is_scored: np.ndarray[Any, np.dtype[np.bool_]], bound: Any
) -> None:
    """Compare the pooled accuracy with a bound, within four standard errors of both."""
    num_scored = is_scored.sum(axis=1)
    accuracy = (is_right & is_scored).sum() / num_scored.sum()
    residuals = (is_right & is_scored).sum(axis=1) - accuracy * num_scored
    standard_error = np.sqrt((residuals**2).sum()) / num_scored.sum()

    assert bound.kind == "exact"
    assert abs(accuracy - bound.value) <= 4 * np.hypot(standard_error, bound.standard_error) + 1e-9


def test_every_task_has_an_oracle_and_published_bounds() -> None:
    assert list(ORACLES) == sorted(PUBLISHED) == [name for name in TASKS if TASKS[name].source == "slay2026"]


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_bounds_agree_with_the_published_ones(name: str) -> None:
    task, row = TASKS[name](), PUBLISHED[name]
    floor, ceiling = task.floor(task.length), task.ceiling(task.length)
    spread = np.hypot(float(row["ceiling_standard_error"]), ceiling.standard_error)

    assert (task.length, task.vocab_size) == (int(row["length"]), int(row["vocab_size"]))
    assert abs(floor.value - float(row["floor"])) < 1e-6
    assert abs(ceiling.value - float(row["ceiling"])) < 1e-6 + 4 * spread
    assert ceiling.standard_error <= 3e-4


@pytest.mark.parametrize(("task", "length"), CASES, ids=IDS)
def test_the_best_constants_score_the_floor(task: Task, length: int) -> None:
    constants = CONSTANTS[task.name](task, length) if task.name in CONSTANTS else 0
    _, targets = task.sample(np.random.default_rng(1), 20_000, length)

    assert_accuracy(targets == np.array(constants), targets != IGNORE, task.floor(length))


@pytest.mark.parametrize(("task", "length"), CASES, ids=IDS)
def test_the_causal_oracle_scores_the_ceiling(task: Task, length: int) -> None:
    inputs, targets = task.sample(np.random.default_rng(2), 8000, length)
    is_scored = targets != IGNORE
    predictions = np.zeros_like(targets)
    # The oracle is handed prefixes: it cannot see the future.
    for position in np.flatnonzero(is_scored.any(axis=0)).tolist():
        predictions[:, position] = ORACLES[task.name](task, inputs[:, : position + 1], length)

    assert_accuracy(predictions == targets, is_scored, task.ceiling(length))
