"""The recall tasks: a reader for each goes through a sequence token by token and says what it must answer."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthbench.errors import UsageError
from synthbench.tasks import accuracy, shortcut_accuracies
from synthbench.tasks.base import IGNORE, TASKS, Task
from synthbench.tasks.recall._queries import ask
from synthbench.tasks.recall.alias_recall import AliasRecall
from synthbench.tasks.recall.composite_recall import CompositeRecall, sides
from synthbench.tasks.recall.fuzzy_recall import FuzzyRecall
from synthbench.tasks.recall.in_context_recall import InContextRecall
from synthbench.tasks.recall.joint_recall import JointRecall
from synthbench.tasks.recall.memorization import Memorization
from synthbench.tasks.recall.mqar import Mqar
from synthbench.tasks.recall.noisy_recall import NoisyRecall
from synthbench.tasks.recall.overwrite_recall import OverwriteRecall

SEEDS = st.integers(0, 2**32 - 1)
Check = Callable[..., None]


def read_pairs(task: Any, inputs: list[int]) -> Iterator[int]:
    """mqar and overwrite_recall: the later of two values replaces the earlier one."""
    values: dict[int, int] = {}
    key, end = IGNORE, 2 * task.num_pairs
    for position, token in enumerate(inputs):
        if position >= end:
            yield values.get(token, IGNORE)
            continue
        if position % 2:
            values[key] = token
        key = token
        yield IGNORE


def read_composite(task: Any, inputs: list[int]) -> Iterator[int]:
    values: dict[tuple[int, ...], int] = {}
    for position, token in enumerate(inputs):
        if position >= 3 * task.num_pairs:
            yield values.get((inputs[position - 1], token), IGNORE)
            continue
        if position % 3 == 2:
            values[inputs[position - 2], inputs[position - 1]] = token
        yield IGNORE


def read_stream(task: Any, inputs: list[int]) -> Iterator[int]:
    """in_context_recall and noisy_recall, whose noise is neither key nor value."""
    values: dict[int, int] = {}
    key, num_keys = IGNORE, task.num_keys
    for token in inputs:
        if token < num_keys:
            key = token
            yield values.get(key, IGNORE)
            continue
        if token < task.vocabulary:
            values[key] = token
        yield IGNORE


def read_fuzzy(task: Any, inputs: list[int]) -> Iterator[int]:
    """At each token of a key as if the key ended there: where it goes on, nothing is asked."""
    values: dict[tuple[int, ...], list[int]] = {}
    key: list[int] = []
    value: list[int] = []
    num_key_tokens = task.num_key_tokens
    for token in inputs:
        if token < num_key_tokens:
            if value:
                values[tuple(key)] = value
                key, value = [], []
            key.append(token)
        else:
            value.append(token)
        known = values.get(tuple(key), [])
        yield known[len(value)] if len(value) < len(known) else IGNORE


@cache
def memorized(num_keys: int) -> dict[int, int]:
    """The value of each key, learned from samples."""
    inputs, targets = Memorization(num_keys=num_keys).sample(np.random.default_rng(9), 40 * num_keys, 2)
    return dict(zip(inputs[:, 0].tolist(), targets[:, 1].tolist(), strict=True))


def read_memorized(task: Any, inputs: list[int]) -> Iterator[int]:
    for position, token in enumerate(inputs):
        is_blank = token == 2 * task.num_keys
        yield memorized(task.num_keys)[inputs[position - 1]] if is_blank else IGNORE


def read_joint(task: Any, inputs: list[int]) -> Iterator[int]:
    values: dict[tuple[int, int], int] = {}
    context, width = IGNORE, 1 + 2 * task.num_keys
    for position, token in enumerate(inputs):
        if position >= task.num_contexts * width:
            yield values.get((inputs[position - 1], token), IGNORE)
            continue
        if position % width == 0:
            context = token
        elif position % width % 2 == 0:
            values[context, inputs[position - 1]] = token
        yield IGNORE


@cache
def meanings(num_keys: int, num_names: int) -> dict[int, int]:
    """The least name of the key that each name belongs to, learned from samples of single pairs."""
    task = AliasRecall(num_keys=num_keys, num_names=num_names, num_pairs=1)
    inputs, _ = task.sample(np.random.default_rng(9), 40 * num_keys * num_names**2, 4)
    meaning = {name: name for name in range(num_keys * num_names)}
    for _ in range(num_names):
        for stored, asked in inputs[:, [0, 2]].tolist():
            meaning[stored] = meaning[asked] = min(meaning[stored], meaning[asked])
    return meaning


def read_aliases(task: Any, inputs: list[int]) -> Iterator[int]:
    meaning = meanings(task.num_keys, task.num_names)
    values: dict[int, int] = {}
    for position, token in enumerate(inputs):
        if position < 2 * task.num_pairs and position % 2:
            values[meaning.get(inputs[position - 1], IGNORE)] = token
        is_query = position >= 2 * task.num_pairs and token in meaning
        yield values.get(meaning[token], IGNORE) if is_query else IGNORE


READERS = {
    "joint_recall": read_joint,
    "alias_recall": read_aliases,
    "mqar": read_pairs,
    "overwrite_recall": read_pairs,
    "composite_recall": read_composite,
    "in_context_recall": read_stream,
    "noisy_recall": read_stream,
    "fuzzy_recall": read_fuzzy,
    "memorization": read_memorized,
}


def oracle(task: Any, inputs: Any) -> Any:
    return np.array([list(READERS[task.name](task, sequence)) for sequence in inputs.tolist()])


def reference(task: Any, inputs: list[int]) -> list[set[int]]:
    """What the reader says, where it is asked."""
    targets = [{answer} for answer in READERS[task.name](task, inputs)]
    if getattr(task, "filler", "blank") == "noise":  # noise may look like a query
        return [target | {IGNORE} for target in targets]
    if getattr(task, "scored", "repeats") == "probe":
        last = max(position for position, token in enumerate(inputs) if token < task.num_keys)
        return [target if position == last else {IGNORE} for position, target in enumerate(targets)]
    if task.name == "fuzzy_recall":
        is_value = [token >= task.num_key_tokens for token in inputs]
        within = [target if follows else {IGNORE} for target, follows in zip(targets, is_value[1:], strict=False)]
        return [*within, targets[-1] | {IGNORE}]
    return targets


COMPOSITES = [(CompositeRecall(num_pairs=4, grid=4, num_values=4), 24), (CompositeRecall(), 128)]
ODD: list[tuple[Task, int]] = [
    (Mqar(num_pairs=5, vocabulary=13, alpha=1.0, filler="noise"), 29),
    (Mqar(num_pairs=3, vocabulary=8, alpha=0.0), 12),
    (OverwriteRecall(num_keys=3, num_rewritten=3, vocabulary=9), 21),
    (OverwriteRecall(num_keys=3, num_rewritten=2, vocabulary=11, num_writes=4, with_replacement=True), 31),
    (OverwriteRecall(num_keys=3, num_rewritten=3, vocabulary=19, tokens_used=4), 25),
    (Mqar(num_pairs=3, vocabulary=19, tokens_used=4), 25),
    (CompositeRecall(num_pairs=9, grid=3, num_values=5), 58),
    (CompositeRecall(num_pairs=4, grid=3, num_values=5, with_replacement=True), 31),
    (CompositeRecall(num_pairs=6, grid=5, num_values=3), 40),
    (InContextRecall(vocabulary=9, scored="probe"), 21),
    (NoisyRecall(vocabulary=9, num_noise=1, noise=0.9), 21),
    (InContextRecall(vocabulary=12, keys_used=2), 20),
    (NoisyRecall(vocabulary=10, keys_used=3, noise=0.5), 24),
    (FuzzyRecall(vocabulary=7, num_keys=2), 17),
    (FuzzyRecall(vocabulary=11, num_keys=9, max_motif=5), 121),
    (Memorization(num_keys=3), 5),
    (JointRecall(num_contexts=3, num_keys=2, context_ids=4, key_ids=5, num_values=5, tokens_used=4), 24),
    (AliasRecall(num_keys=5, num_names=3, num_values=6, num_pairs=4, tokens_used=4), 19),
]


@pytest.mark.parametrize("name", READERS)
def test_bounds_hold_at_the_length_of_the_paper(assert_task_holds: Check, name: str) -> None:
    assert_task_holds(TASKS[name](), TASKS[name].length, oracle)


@pytest.mark.parametrize(("task", "length"), ODD, ids=[task.name for task, _ in ODD])
def test_odd_knobs_and_lengths_hold_their_bounds(assert_task_holds: Check, task: Task, length: int) -> None:
    assert_task_holds(task, length, oracle)


@pytest.mark.parametrize("name", READERS)
def test_worked_example_of_the_docstring_is_true(assert_example_holds: Check, name: str) -> None:
    assert_example_holds(name, reference)


@given(
    seed=SEEDS,
    num_pairs=st.integers(1, 8),
    spare=st.integers(0, 9),
    more=st.integers(0, 20),
    alpha=st.floats(0, 1),
    filler=st.sampled_from(["blank", "noise"]),
)
def test_mqar_asks_each_key_once_for_its_value(
    assert_targets_follow: Check, seed: int, num_pairs: int, spare: int, more: int, alpha: float, filler: Any
) -> None:
    task = Mqar(num_pairs=num_pairs, vocabulary=2 * num_pairs + 2 + spare, alpha=alpha, filler=filler)
    length = 4 * num_pairs + more
    assert_targets_follow(task, reference, seed, length)

    for inputs, targets in zip(*task.sample(np.random.default_rng(seed), 4, length), strict=True):
        keys, values = inputs[0 : 2 * num_pairs : 2], inputs[1 : 2 * num_pairs : 2]
        assert len(set(keys)) == len(set(values)) == num_pairs
        assert keys.max() < task.num_key_tokens <= values.min() <= values.max() < task.vocabulary - 1
        assert sorted(inputs[targets != IGNORE]) == sorted(keys)


@given(
    seed=SEEDS,
    num_keys=st.integers(1, 8),
    rewritten=st.integers(0, 8),
    num_writes=st.integers(2, 4),
    spare=st.integers(5, 9),
    more=st.integers(0, 20),
)
def test_overwrite_recall_asks_each_key_once_for_its_latest_value(
    assert_targets_follow: Check, seed: int, num_keys: int, rewritten: int, num_writes: int, spare: int, more: int
) -> None:
    num_rewritten = min(rewritten, num_keys)
    vocabulary = 2 * num_keys + 2 + spare
    task = OverwriteRecall(num_keys=num_keys, num_rewritten=num_rewritten, vocabulary=vocabulary, num_writes=num_writes)
    length = task.min_length + more
    assert_targets_follow(task, reference, seed, length)

    for inputs, targets in zip(*task.sample(np.random.default_rng(seed), 4, length), strict=True):
        pairs = inputs[: 2 * task.num_pairs].reshape(-1, 2).tolist()
        writes = Counter(key for key, _ in pairs)
        assert len({tuple(pair) for pair in pairs}) == len(pairs)
        assert sorted(writes.values()) == [1] * (num_keys - num_rewritten) + [num_writes] * num_rewritten
        assert sorted(inputs[targets != IGNORE]) == sorted({key for key, _ in pairs})


@given(
    seed=SEEDS,
    num_rows=st.integers(2, 4),
    num_columns=st.integers(2, 4),
    spare=st.integers(0, 3),
    num_values=st.integers(2, 9),
    more=st.integers(0, 20),
)
def test_composite_recall_asks_each_key_once_for_its_value(
    assert_targets_follow: Check, seed: int, num_rows: int, num_columns: int, spare: int, num_values: int, more: int
) -> None:
    grid = max(num_rows, num_columns) + spare
    task = CompositeRecall(num_pairs=num_rows * num_columns, grid=grid, num_values=num_values)
    length = task.min_length + more
    assert_targets_follow(task, reference, seed, length)

    for inputs, targets in zip(*task.sample(np.random.default_rng(seed), 4, length), strict=True):
        asked = np.flatnonzero(targets != IGNORE)
        keys = inputs[: 3 * task.num_pairs].reshape(-1, 3)[:, :2].tolist()
        assert sorted(zip(inputs[asked - 1], inputs[asked], strict=True)) == sorted(map(tuple, keys))


@pytest.mark.parametrize(("task", "length"), COMPOSITES)
@given(seed=SEEDS)
def test_every_token_of_a_composite_key_stands_at_its_place_in_two_keys_or_more(
    task: CompositeRecall, length: int, seed: int
) -> None:
    """The keys are all cells of a part of the grid, so that one of their tokens alone leaves several values."""
    for inputs in task.sample(np.random.default_rng(seed), 4, length).inputs:
        first, second, _ = inputs[: 3 * task.num_pairs].reshape(-1, 3).T
        for tokens in (first, second):
            assert np.unique(tokens, return_counts=True)[1].min() >= 2
        assert len(set(first)) * len(set(second)) == len(set(zip(first, second, strict=True))) == task.num_pairs
        assert first.max() < task.grid <= second.min()
        assert second.max() < 2 * task.grid


@pytest.mark.parametrize(("task", "length"), COMPOSITES)
def test_one_token_of_a_composite_key_is_worth_a_guess_among_the_values_of_its_keys(
    task: CompositeRecall, length: int
) -> None:
    num_first, num_second = sides(task.num_pairs)
    measured = shortcut_accuracies(task, length)

    # A first token stands in one key for each second token, and the other way round.
    for name, num_keys in (("same_first", num_second), ("same_second", num_first), ("rarer_token", num_first)):
        guess = 1 / num_keys + (1 - 1 / num_keys) / task.num_values
        assert abs(measured[name].value - guess) < 4 * measured[name].standard_error, name


def test_the_rarer_token_of_a_composite_key_is_the_one_in_fewer_keys() -> None:
    """Keys that are no whole part of a grid, as in the task's first version, give themselves away."""
    task = CompositeRecall(num_pairs=4, grid=4, num_values=4)
    keys = [1, 6, 11, 0, 4, 8, 0, 5, 9, 0, 6, 10]
    queries = [1, 6, 12, 0, 4, 12, 0, 5, 12, 0, 6, 12]
    rules = task.shortcuts(np.array([keys + queries]))
    answers = {name: predictions[0, 13::3].tolist() for name, predictions in rules.items()}

    assert answers == {
        "same_first": [11, 10, 10, 10],
        "same_second": [10, 8, 9, 10],
        "rarer_token": [11, 8, 9, 10],
    }


@pytest.mark.parametrize(
    ("num_pairs", "expected"), [(4, (2, 2)), (6, (2, 3)), (12, (3, 4)), (16, (4, 4)), (24, (4, 6)), (13, (1, 13))]
)
def test_the_sides_of_a_number_of_keys_differ_as_little_as_possible(num_pairs: int, expected: tuple[int, int]) -> None:
    assert sides(num_pairs) == expected


@given(
    seed=SEEDS,
    length=st.integers(3, 40),
    vocabulary=st.integers(4, 20),
    keys=st.integers(0, 2),
    scored=st.sampled_from(["repeats", "probe"]),
)
def test_in_context_recall_asks_keys_that_come_again(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int, keys: int, scored: Any
) -> None:
    task = InContextRecall(vocabulary=vocabulary, keys_used=keys, scored=scored)
    assert_targets_follow(task, reference, seed, length)


@given(
    seed=SEEDS,
    length=st.integers(3, 40),
    vocabulary=st.integers(4, 20),
    keys=st.integers(0, 2),
    num_noise=st.integers(1, 5),
    noise=st.floats(0, 1),
)
def test_noisy_recall_asks_keys_that_come_again(
    assert_targets_follow: Check, seed: int, length: int, vocabulary: int, keys: int, num_noise: int, noise: float
) -> None:
    task = NoisyRecall(vocabulary=vocabulary, keys_used=keys, num_noise=num_noise, noise=noise)
    assert_targets_follow(task, reference, seed, length)


@pytest.mark.parametrize("unit", [InContextRecall, NoisyRecall])
def test_of_a_streams_keys_the_first_ones_occur_with_any_value(unit: Any) -> None:
    task = unit(vocabulary=16, keys_used=3)
    inputs, _ = task.sample(np.random.default_rng(0), 400, 60)
    keys, values = inputs[:, 0::2], inputs[:, 1::2]
    is_pair = keys < task.num_keys

    assert set(keys[is_pair]) == {0, 1, 2}
    assert set(values[is_pair]) == set(range(8, 16))


@given(
    seed=SEEDS,
    num_keys=st.integers(2, 6),
    max_motif=st.integers(2, 4),
    vocabulary=st.integers(12, 20),
    more=st.integers(0, 30),
)
def test_fuzzy_recall_asks_values_of_keys_that_come_again(
    assert_targets_follow: Check, seed: int, num_keys: int, max_motif: int, vocabulary: int, more: int
) -> None:
    task = FuzzyRecall(vocabulary=vocabulary, num_keys=num_keys, max_motif=max_motif)
    assert_targets_follow(task, reference, seed, task.min_length + more)


@given(seed=SEEDS, num_keys=st.integers(2, 9), length=st.integers(2, 40))
def test_memorization_gives_every_key_the_same_value_always(
    assert_targets_follow: Check, seed: int, num_keys: int, length: int
) -> None:
    assert sorted(memorized(num_keys).values()) == list(range(num_keys, 2 * num_keys))
    assert_targets_follow(Memorization(num_keys=num_keys), reference, seed, length)


@pytest.mark.parametrize("task", [InContextRecall(vocabulary=4), NoisyRecall(vocabulary=4)])
def test_the_last_key_was_there_before_and_is_any_of_those(task: Task) -> None:
    inputs, targets = task.sample(np.random.default_rng(0), 20_000, 8)
    keys = np.where(inputs[:, ::2] < 2, inputs[:, ::2], -1)
    has_both = (keys[:, :-1] == 0).any(axis=1) & (keys[:, :-1] == 1).any(axis=1)

    assert (targets[:, -2] != IGNORE).all()
    assert abs(keys[has_both, -1].mean() - 0.5) < 4 * 0.5 / has_both.sum() ** 0.5


def test_noisy_recall_draws_noise_as_often_as_asked() -> None:
    inputs, _ = NoisyRecall(noise=0.4).sample(np.random.default_rng(0), 4000, 42)
    is_noise = inputs >= 16

    assert (is_noise[:, ::2] == is_noise[:, 1::2]).all()
    # Of 20 slots before the last, one is free of noise.
    assert abs(is_noise[:, :40].mean() - 0.4 * 19 / 20) < 4 * (0.24 / 80_000) ** 0.5


def test_fuzzy_recall_draws_motifs_of_every_size_without_repetition() -> None:
    task = FuzzyRecall(vocabulary=12, num_keys=3, max_motif=4)
    inputs, _ = task.sample(np.random.default_rng(0), 500, 60)
    is_key = inputs < task.num_key_tokens
    sizes = set()
    for sequence, kinds in zip(inputs, is_key, strict=True):
        motifs = np.split(sequence, np.flatnonzero(kinds[1:] != kinds[:-1]) + 1)
        assert len({tuple(motif) for motif in motifs[:-1] if motif[0] < task.num_key_tokens}) <= 3
        for motif in motifs:
            assert len(set(motif)) == len(motif)
            sizes.add(len(motif))

    assert sizes == {1, 2, 3, 4}


def test_the_first_value_is_right_for_keys_written_once_and_for_no_other() -> None:
    task = OverwriteRecall()
    inputs, targets = task.sample(np.random.default_rng(0), 200, 64)
    is_right = (task.shortcuts(inputs)["first_value"] == targets).sum(axis=1)

    assert (is_right == task.num_keys - task.num_rewritten).all()


def test_any_value_of_a_key_is_right_as_often_as_the_key_has_one_value_among_many() -> None:
    for rung in OverwriteRecall.ladder(longest=128):
        inputs, targets = rung.task.sample(np.random.default_rng(0), 4000, rung.length)
        reached = accuracy(rung.task.rung_shortcuts(inputs)["any_value"], targets)

        assert abs(reached.value - 1 / 3) < 4 * reached.standard_error


def test_on_a_rung_the_keys_of_overwrite_recall_that_were_not_asked_yet_tell_nothing() -> None:
    """Of two keys, the second query asks for either, whichever the first asked for."""
    rung = OverwriteRecall.ladder(longest=16)[0]
    inputs, _ = rung.task.sample(np.random.default_rng(0), 4000, rung.length)

    assert abs((inputs[:, 12] == inputs[:, 14]).mean() - 0.5) < 4 * 0.5 / 4000**0.5


def test_on_a_rung_a_value_not_asked_yet_that_shares_a_token_is_worth_no_more_than_any_such_value() -> None:
    for rung in CompositeRecall.ladder(longest=96):
        inputs, targets = rung.task.sample(np.random.default_rng(0), 4000, rung.length)
        base = max(accuracy(rule, targets).value for rule in rung.task.rung_shortcuts(inputs).values())

        assert abs(_unasked_value_sharing_the_second_token(rung.task, inputs, targets) - base) < 0.02


def _unasked_value_sharing_the_second_token(task: Any, inputs: Any, targets: Any) -> float:
    """Expected accuracy of a guess among the keys with the same second token that no query before asked for."""
    end, num_right, num_asked = 3 * task.num_pairs, 0.0, 0
    first, second, values = inputs[:, 0:end:3], inputs[:, 1:end:3], inputs[:, 2:end:3]
    is_left = np.ones(first.shape, dtype=bool)
    for position in range(end + 1, inputs.shape[1]):
        rows = np.flatnonzero(targets[:, position] != IGNORE)
        is_same = second[rows] == inputs[rows, position, None]
        is_unasked = is_same & is_left[rows]
        is_open = np.where(is_unasked.any(axis=1, keepdims=True), is_unasked, is_same)
        is_right = is_open & (values[rows] == targets[rows, position, None])
        num_right += (is_right.sum(axis=1) / is_open.sum(axis=1)).sum()
        num_asked += len(rows)
        is_left[rows] &= ~(is_same & (first[rows] == inputs[rows, position - 1, None]))
    return num_right / num_asked


def test_stretching_multiplies_the_pairs_with_the_length() -> None:
    assert Mqar(num_pairs=5).stretched(40, 4) == (Mqar(num_pairs=20), 160)


@pytest.mark.parametrize(
    ("name", "knobs", "reason"),
    [
        ("mqar", {"vocabulary": 32}, r"num_pairs of task 'mqar' is 16; allowed: at most 15, the number of keys"),
        ("overwrite_recall", {"vocabulary": 16}, r"num_keys of .* is 8; allowed: at most 7, the number of keys that"),
        ("overwrite_recall", {"num_keys": 3}, r"num_rewritten of .* is 4; allowed: at most 3, the number of keys in a"),
        (
            "overwrite_recall",
            {"num_keys": 1, "num_rewritten": 1, "vocabulary": 7, "num_writes": 4},
            r"num_writes of .* is 4; allowed: at most 3, the number of values that are used",
        ),
        ("mqar", {"tokens_used": 12}, r"num_pairs of .* is 16; allowed: at most 12, the number of keys that are used"),
        (
            "mqar",
            {"vocabulary": 64, "tokens_used": 32},
            r"tokens_used of .* is 32; allowed: at most 31, the number of keys in the vocabulary",
        ),
        ("composite_recall", {"grid": 3}, r"is 16; allowed: a product of two numbers from 2 to 3, .* did you mean 9\?"),
        ("composite_recall", {"num_pairs": 17}, r"num_pairs of .* is 17; .* the size of .* did you mean 16 or 18\?"),
        ("composite_recall", {"num_pairs": 22}, r"num_pairs of .* is 22; .* from 2 to 8, .* did you mean 21\?"),
        (
            "in_context_recall",
            {"keys_used": 9},
            r"keys_used of .* is 9; allowed: at most 8, the number of keys in the vocabulary",
        ),
        ("fuzzy_recall", {"vocabulary": 4}, r"max_motif of .* is 3; allowed: at most 2, the number of tokens"),
        ("fuzzy_recall", {"vocabulary": 6, "num_keys": 16}, r"num_keys of .* is 16; allowed: at most 15, .* different"),
    ],
)
def test_knobs_that_contradict_each_other_are_refused(name: str, knobs: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        TASKS[name](**knobs)


@pytest.mark.parametrize(
    ("name", "shortest"),
    [
        ("mqar", 64),
        ("overwrite_recall", 40),
        ("composite_recall", 96),
        ("in_context_recall", 3),
        ("noisy_recall", 3),
        ("fuzzy_recall", 51),
        ("memorization", 2),
    ],
)
def test_shorter_sequences_are_refused(name: str, shortest: int) -> None:
    task = TASKS[name]()
    rng = np.random.default_rng(0)
    assert task.sample(rng, 1, shortest).inputs.shape == (1, shortest)
    for call in (task.floor, task.ceiling, lambda length: task.sample(rng, 1, length)):
        with pytest.raises(
            UsageError, match=f"length of task '{name}' is {shortest - 1}; allowed: {shortest} and more"
        ):
            call(shortest - 1)


def assert_shares(outcomes: Any, expected: dict[tuple[int, ...], float]) -> None:
    found, counts = np.unique(outcomes, axis=0, return_counts=True)
    assert set(map(tuple, found.tolist())) == set(expected)
    for outcome, count in zip(found.tolist(), counts, strict=True):
        share = expected[tuple(outcome)]
        assert abs(count / len(outcomes) - share) < 4.5 * (share * (1 - share) / len(outcomes)) ** 0.5


@pytest.mark.parametrize("unit", [Mqar, OverwriteRecall])
def test_of_a_vocabulary_the_first_keys_and_values_are_used(unit: Any) -> None:
    loads = {"num_pairs": 3} if unit is Mqar else {"num_keys": 3, "num_rewritten": 2}
    task = unit(vocabulary=21, tokens_used=4, **loads)
    inputs, targets = task.sample(np.random.default_rng(0), 64, 32)

    assert task.vocab_size == 21
    assert set(inputs.ravel().tolist()) == {0, 1, 2, 3, 10, 11, 12, 13, 20}
    assert set(targets[targets != IGNORE].tolist()) == {10, 11, 12, 13}
    assert task.floor(32).value == 1 / 4


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_keys_draw_their_places_one_after_the_other_by_the_power_law(alpha: float) -> None:
    keys = np.tile([[[7], [8]]], (20_000, 1, 1))
    inputs = np.zeros((20_000, 6), dtype=np.int64)
    targets = ask(np.random.default_rng(0), inputs, keys, keys[:, :, 0], 0, alpha)
    places = np.stack([(targets == key).argmax(axis=1) // 2 for key in (7, 8)], axis=1)
    weights = [slot ** (alpha - 1) for slot in (1, 2, 3)]

    assert_shares(
        places,
        {
            (i, j): weights[i] / sum(weights) * weights[j] / (sum(weights) - weights[i])
            for i in range(3)
            for j in range(3)
            if i != j
        },
    )


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_contexts=st.integers(2, 5),
    num_keys=st.integers(1, 5),
    spare=st.integers(0, 3),
    more=st.integers(0, 20),
)
def test_joint_recall_asks_keys_in_contexts_whose_values_differ(
    assert_targets_follow: Check, seed: int, num_contexts: int, num_keys: int, spare: int, more: int
) -> None:
    task = JointRecall(
        num_contexts=num_contexts,
        num_keys=num_keys,
        context_ids=num_contexts + spare,
        key_ids=num_keys + spare,
        num_values=num_contexts + spare,
    )
    assert_targets_follow(task, reference, seed, task.min_length + more)

    inputs, _ = task.sample(np.random.default_rng(seed), 4, task.min_length + more)
    for read in inputs[:, : task.min_length - 2].reshape(4, num_contexts, -1).tolist():
        tables = [dict(zip(block[1::2], block[2::2], strict=True)) for block in read]
        assert len({block[0] for block in read}) == num_contexts
        assert all(table.keys() == tables[0].keys() for table in tables)
        assert all(len({table[key] for table in tables}) == num_contexts for key in tables[0])


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_pairs=st.integers(1, 5),
    spare=st.integers(0, 3),
    num_names=st.integers(2, 4),
    more=st.integers(0, 20),
)
def test_alias_recall_asks_each_key_once_by_another_name(
    assert_targets_follow: Check, seed: int, num_pairs: int, spare: int, num_names: int, more: int
) -> None:
    task = AliasRecall(
        num_keys=num_pairs + spare, num_names=num_names, num_values=max(2, num_pairs + spare), num_pairs=num_pairs
    )
    length = 4 * num_pairs + more
    assert_targets_follow(task, reference, seed, length)

    meaning = meanings(task.num_keys, num_names)
    for inputs, targets in zip(*task.sample(np.random.default_rng(seed), 4, length), strict=True):
        stored = inputs[0 : 2 * num_pairs : 2].tolist()
        asked = inputs[targets != IGNORE].tolist()
        assert not set(stored) & set(asked)
        assert sorted(meaning[name] for name in stored) == sorted(meaning[name] for name in asked)


def test_any_value_takes_each_value_of_a_key_or_context_as_often_as_another() -> None:
    task = JointRecall(num_contexts=3, num_keys=4)
    inputs, targets = task.sample(np.random.default_rng(0), 6000, 64)
    guesses = task.shortcuts(inputs)

    for rule, num_values in {"any value of the key": 3, "any value of the context": 4}.items():
        share = accuracy(guesses[rule], targets)
        least, most = 1 / num_values, 1 / num_values + (num_values - 1) / num_values / 8
        assert least - 4 * share.standard_error < share.value < most + 4 * share.standard_error


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JointRecall(num_contexts=9), "num_contexts of task 'joint_recall' is 9; allowed: at most 8"),
        (lambda: JointRecall(num_keys=33), "num_keys of task 'joint_recall' is 33; allowed: at most 32"),
        (lambda: JointRecall(tokens_used=5), "num_keys of task 'joint_recall' is 6; allowed: at most 5"),
        (lambda: JointRecall(tokens_used=9), "tokens_used of task 'joint_recall' is 9; allowed: at most 8"),
        (lambda: AliasRecall(num_pairs=33), "num_pairs of task 'alias_recall' is 33; allowed: at most 32"),
        (lambda: AliasRecall(tokens_used=33), "tokens_used of task 'alias_recall' is 33; allowed: at most 32"),
    ],
)
def test_tables_that_ids_cannot_fill_are_refused(make: Callable[[], Task], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
