"""The recall tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections import Counter
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest

from synthbench.tasks.base import IGNORE, Task
from synthbench.tasks.recall._queries import ask
from synthbench.tasks.recall.alias_recall import AliasRecall
from synthbench.tasks.recall.composite_recall import CompositeRecall, sides
from synthbench.tasks.recall.fuzzy_recall import FuzzyRecall
from synthbench.tasks.recall.in_context_recall import InContextRecall
from synthbench.tasks.recall.memorization import Memorization
from synthbench.tasks.recall.mqar import Mqar
from synthbench.tasks.recall.noisy_recall import NoisyRecall
from synthbench.tasks.recall.overwrite_recall import OverwriteRecall
from synthbench.tasks.recall.query_first_recall import QueryFirstRecall
from tests.tasks._known import Known, last_only, oracle_of, targets_from


def latest_values(task: Any, inputs: list[int]) -> list[set[int]]:
    """mqar and overwrite_recall: the later of two values replaces the earlier one."""
    end = 2 * task.num_pairs
    values = dict(zip(inputs[0:end:2], inputs[1:end:2], strict=True))
    return targets_from(inputs, end, [values.get(token, IGNORE) for token in inputs[end:]])


def composite_values(task: Any, inputs: list[int]) -> list[set[int]]:
    end = 3 * task.num_pairs
    values = {tuple(inputs[place : place + 2]): inputs[place + 2] for place in range(0, end, 3)}
    asked = pairwise(inputs[end - 1 :])
    return targets_from(inputs, end, [values.get(key, IGNORE) for key in asked])


@cache
def memorized(num_keys: int) -> dict[int, int]:
    """The value of each key, learned from samples."""
    inputs, targets = Memorization(num_keys=num_keys).sample(np.random.default_rng(9), 40 * num_keys, 2)
    return dict(zip(inputs[:, 0].tolist(), targets[:, 1].tolist(), strict=True))


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


def values_of_aliases(task: Any, inputs: list[int]) -> list[set[int]]:
    meaning, end = meanings(task.num_keys, task.num_names), 2 * task.num_pairs
    keys = [meaning[name] for name in inputs[0:end:2]]
    values = dict(zip(keys, inputs[1:end:2], strict=True))
    return targets_from(inputs, end, [values.get(meaning.get(token, IGNORE), IGNORE) for token in inputs[end:]])


def values_of_motifs(task: Any, inputs: list[int]) -> list[set[int]]:
    """At each token of a key as if the key ended there: where it goes on, nothing is asked."""
    values: dict[tuple[int, ...], list[int]] = {}
    key: list[int] = []
    value: list[int] = []
    targets = []
    for token in inputs:
        if token < task.num_key_tokens:
            if value:
                values[tuple(key)] = value
                key, value = [], []
            key.append(token)
        else:
            value.append(token)
        known = values.get(tuple(key), [])
        targets.append({known[len(value)] if len(value) < len(known) else IGNORE})
    return targets


def asked_once(inputs: list[int], targets: list[set[int]], keys: list[int]) -> bool:
    """Return whether the keys, and no others, are asked, each of them once."""
    asked = [token for token, target in zip(inputs, targets, strict=True) if target != {IGNORE}]
    return len(set(keys)) == len(keys) and sorted(asked) == sorted(keys)


def of_stream(task: Any, inputs: list[int]) -> list[set[int]]:
    """in_context_recall and noisy_recall, whose noise is neither key nor value."""
    values: dict[int, int] = {}
    targets = []
    for before, token in pairwise([IGNORE, *inputs]):
        targets.append({values.get(token, IGNORE)})
        if task.num_keys <= token < task.vocabulary:
            values[before] = token
    if getattr(task, "scored", "repeats") == "repeats":
        return targets
    last = max(position for position, token in enumerate(inputs) if token < task.num_keys)
    return [target if position == last else {IGNORE} for position, target in enumerate(targets)]


def of_motifs(task: Any, inputs: list[int]) -> list[set[int]]:
    """Ask where a value goes on; after the last token it may go on."""
    *targets, last = values_of_motifs(task, inputs)
    is_value = [token >= task.num_key_tokens for token in inputs]
    within = [target if follows else {IGNORE} for target, follows in zip(targets, is_value[1:], strict=True)]
    return [*within, last | {IGNORE}]


def of_pairs(task: Any, inputs: list[int]) -> list[set[int]]:
    """Keys and values are distinct and have ids of their own; each key is asked once."""
    keys, values = inputs[0 : 2 * task.num_pairs : 2], inputs[1 : 2 * task.num_pairs : 2]
    targets = latest_values(task, inputs)
    assert len(set(keys)) == len(set(values)) == task.num_pairs
    assert max(keys) < task.num_key_tokens <= min(values)
    assert max(values) < task.vocabulary - 1
    if task.filler == "noise":  # noise may look like a query
        return [target | {IGNORE} for target in targets]
    assert asked_once(inputs, targets, keys)
    return targets


def of_writes(task: Any, inputs: list[int]) -> list[set[int]]:
    """So many keys are written so often, with another value each time; each key is asked once for its latest."""
    pairs = [tuple(inputs[place : place + 2]) for place in range(0, 2 * task.num_pairs, 2)]
    writes = Counter(key for key, _ in pairs)
    num_rewritten = task.num_rewritten
    targets = latest_values(task, inputs)
    assert len(set(pairs)) == len(pairs)
    assert sorted(writes.values()) == [1] * (task.num_keys - num_rewritten) + [task.num_writes] * num_rewritten
    assert asked_once(inputs, targets, list(writes))
    return targets


def of_composites(task: Any, inputs: list[int]) -> list[set[int]]:
    """The keys are all cells of a part of the grid, so that one token alone leaves several values; each is asked once.

    One is worth a guess among the values of its keys: a first token stands in one key for each second token.
    """
    firsts, seconds = inputs[0 : 3 * task.num_pairs : 3], inputs[1 : 3 * task.num_pairs : 3]
    keys = list(zip(firsts, seconds, strict=True))
    targets = composite_values(task, inputs)
    asked = [place for place, target in enumerate(targets) if target != {IGNORE}]
    assert min(Counter(firsts).values()) == len(set(seconds)) >= 2
    assert min(Counter(seconds).values()) == len(set(firsts)) >= 2
    assert len(set(keys)) == task.num_pairs
    assert max(firsts) < task.grid <= min(seconds)
    assert max(seconds) < 2 * task.grid
    assert sorted((inputs[place - 1], inputs[place]) for place in asked) == sorted(keys)
    return targets


def of_one_pair(task: Any, inputs: list[int]) -> list[set[int]]:
    """The first key stands in one pair; keys, values and the question mark have ids of their own."""
    first, *pairs, mark = inputs
    keys, values = pairs[0::2], pairs[1::2]
    assert keys.count(first) == 1
    assert max(keys) < (task.tokens_used or task.num_keys)
    assert task.num_keys <= min(values)
    assert max(values) < task.num_keys + task.num_answers
    assert mark == task.vocab_size - 1
    return last_only(inputs, values[keys.index(first)])


def of_contexts(task: Any, inputs: list[int]) -> list[set[int]]:
    """Every context has the same keys, and every key another value in each."""
    width = 1 + 2 * task.num_keys
    end = task.num_contexts * width
    blocks = [inputs[place : place + width] for place in range(0, end, width)]
    tables = {block[0]: dict(zip(block[1::2], block[2::2], strict=True)) for block in blocks}
    keys = next(iter(tables.values())).keys()
    assert len(tables) == task.num_contexts
    assert all(table.keys() == keys for table in tables.values())
    assert all(len({table[key] for table in tables.values()}) == task.num_contexts for key in keys)
    questions = zip(inputs[end::2], inputs[end + 1 :: 2], strict=False)
    answers = [[IGNORE, tables[context][key]] for context, key in questions]
    return targets_from(inputs, end, [*chain.from_iterable(answers)])


def of_aliases(task: Any, inputs: list[int]) -> list[set[int]]:
    """Each key is asked once, by another name."""
    meaning, targets = meanings(task.num_keys, task.num_names), values_of_aliases(task, inputs)
    stored = inputs[0 : 2 * task.num_pairs : 2]
    asked = [token for token, target in zip(inputs, targets, strict=True) if target != {IGNORE}]
    assert not set(stored) & set(asked)
    assert sorted(meaning[name] for name in stored) == sorted(meaning[name] for name in asked)
    return targets


def of_memory(task: Any, inputs: list[int]) -> list[set[int]]:
    assert sorted(memorized(task.num_keys).values()) == list(range(task.num_keys, 2 * task.num_keys))
    values, blank = memorized(task.num_keys), 2 * task.num_keys
    asked = pairwise([IGNORE, *inputs])
    return targets_from(inputs, 0, [values[before] if token == blank else IGNORE for before, token in asked])


KNOWN = {
    "query_first_recall": Known(
        of_one_pair,
        {"num_keys": (3, 9), "num_values": (2, 9), "tokens_used": [0, 2, 3]},
        [("num_keys=5,num_values=4", 14), ("num_keys=8,tokens_used=3", 10)],
    ),
    "mqar": Known(
        of_pairs,
        {"num_pairs": (1, 8), "vocabulary": (4, 27), "alpha": (0.0, 1.0), "filler": ["blank", "noise"]},
        [
            ("num_pairs=5,vocabulary=13,alpha=1.0,filler=noise", 29),
            ("num_pairs=3,vocabulary=19,tokens_used=4", 25),
        ],
        oracle_of(latest_values),
    ),
    "overwrite_recall": Known(
        of_writes,
        {"num_keys": (1, 8), "num_rewritten": (0, 8), "vocabulary": (9, 27), "num_writes": (2, 4)},
        [
            ("num_keys=3,num_rewritten=2,vocabulary=11,num_writes=4,with_replacement=true", 31),
            ("num_keys=3,num_rewritten=3,vocabulary=19,tokens_used=4", 25),
        ],
        oracle_of(latest_values),
    ),
    "composite_recall": Known(
        of_composites,
        {"num_pairs": [4, 6, 8, 9, 12, 16], "grid": (2, 7), "num_values": (2, 9)},
        [("num_pairs=9,grid=3,num_values=5", 58), ("num_pairs=4,grid=3,num_values=5,with_replacement=true", 31)],
        oracle_of(composite_values),
    ),
    "in_context_recall": Known(
        of_stream,
        {"vocabulary": (4, 20), "keys_used": (0, 2), "values_used": (0, 2), "scored": ["repeats", "probe"]},
        [
            ("vocabulary=9,scored=probe", 21),
            ("vocabulary=12,keys_used=2", 20),
            ("vocabulary=12,keys_used=3,values_used=2", 20),
        ],
    ),
    "noisy_recall": Known(
        of_stream,
        {"vocabulary": (4, 20), "keys_used": (0, 2), "num_noise": (1, 5), "noise": (0.0, 1.0)},
        [("vocabulary=9,num_noise=1,noise=0.9", 21), ("vocabulary=10,keys_used=3", 24)],
    ),
    "fuzzy_recall": Known(
        of_motifs,
        {"vocabulary": (12, 20), "num_keys": (2, 6), "max_motif": (2, 4)},
        [("vocabulary=7,num_keys=2", 17)],
        oracle_of(values_of_motifs),
    ),
    "memorization": Known(of_memory, {"num_keys": (2, 9)}, [("num_keys=3", 5)]),
    "joint_recall": Known(
        of_contexts,
        {"num_contexts": (2, 5), "num_keys": (1, 5), "context_ids": (2, 8), "key_ids": (1, 8), "num_values": (2, 8)},
        [("num_contexts=3,num_keys=2,context_ids=4,key_ids=5,num_values=5,tokens_used=4", 24)],
    ),
    "alias_recall": Known(
        of_aliases,
        {"num_keys": (1, 8), "num_names": (2, 4), "num_values": (2, 8), "num_pairs": (1, 5)},
        [("num_keys=5,num_names=3,num_values=6,num_pairs=4,tokens_used=4", 19)],
        oracle_of(values_of_aliases),
    ),
}


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


@pytest.mark.parametrize("unit", [InContextRecall, NoisyRecall])
def test_of_a_streams_keys_the_first_ones_occur_with_any_value(unit: Any) -> None:
    task = unit(vocabulary=16, keys_used=3)
    inputs, _ = task.sample(np.random.default_rng(0), 400, 60)
    keys, values = inputs[:, 0::2], inputs[:, 1::2]
    is_pair = keys < task.num_keys

    assert set(keys[is_pair]) == {0, 1, 2}
    assert set(values[is_pair]) == set(range(8, 16))


@pytest.mark.parametrize("task", [InContextRecall(vocabulary=4), NoisyRecall(vocabulary=4)])
def test_the_last_key_was_there_before_and_is_any_of_those(task: Task) -> None:
    inputs, targets = task.sample(np.random.default_rng(0), 20_000, 8)
    keys = np.where(inputs[:, ::2] < 2, inputs[:, ::2], -1)
    has_both = (keys[:, :-1] == 0).any(axis=1) & (keys[:, :-1] == 1).any(axis=1)

    assert (targets[:, -2] != IGNORE).all()
    assert abs(keys[has_both, -1].mean() - 0.5) < 4 * 0.5 / has_both.sum() ** 0.5


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


@pytest.mark.parametrize(("unit", "width", "num_keys"), [(OverwriteRecall, 1, 2), (CompositeRecall, 2, 4)])
def test_on_a_level_the_keys_that_were_not_asked_yet_tell_nothing(unit: type[Task], width: int, num_keys: int) -> None:
    """The second query asks for any key, whichever the first asked for."""
    level = unit.ladder(longest=24)[0]
    inputs, _ = level.task.sample(np.random.default_rng(0), 4000, level.length)
    queries = inputs[:, -num_keys * (width + 1) :].reshape(4000, num_keys, width + 1)
    is_same = (queries[:, 0] == queries[:, 1]).all(axis=1)

    assert abs(is_same.mean() - 1 / num_keys) < 4 * 0.5 / 4000**0.5


@pytest.mark.parametrize("task", [Mqar(num_pairs=5, tokens_used=19), AliasRecall(num_pairs=5, tokens_used=19)])
def test_where_no_keys_are_left_stretching_adds_blanks(task: Task) -> None:
    longer, length = task.stretched(20, 4)
    inputs, targets = longer.sample(np.random.default_rng(0), 50, length)

    assert (longer, length) == (task, 80)
    assert ((targets != IGNORE).sum(axis=1) == 5).all()
    # Every token of the longer sequences stands in those as trained on too.
    assert set(np.unique(inputs)) <= set(np.unique(task.sample(np.random.default_rng(1), 500, 20).inputs))


def test_on_every_level_of_query_first_recall_several_keys_stand_once() -> None:
    """A single one would be the first key, whatever that is."""
    for level in QueryFirstRecall.ladder(longest=1024)[1:]:
        inputs, _ = level.task.sample(np.random.default_rng(0), 200, level.length)
        counts = [Counter(keys) for keys in inputs[:, 1:-1:2].tolist()]
        others = np.mean([list(of.values()).count(1) - 1 for of in counts])
        assert others > 0.5, level.load


def test_the_place_of_the_first_key_and_all_values_are_uniform() -> None:
    inputs, targets = QueryFirstRecall(num_keys=4, num_values=4).sample(np.random.default_rng(0), 20_000, 10)
    places = (inputs[:, 1:-1:2] == inputs[:, :1]).argmax(axis=1)

    assert_shares(places[:, None], {(place,): 1 / 4 for place in range(4)})
    assert_shares(targets[:, -1:], {(value,): 1 / 4 for value in range(4, 8)})
    assert_shares(inputs[:, 2:3], {(value,): 1 / 4 for value in range(4, 8)})


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
