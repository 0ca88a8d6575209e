"""The recall tasks: targets recomputed from the inputs alone, one sequence at a time."""

from collections import Counter
from functools import cache
from itertools import chain, pairwise, permutations
from typing import Any

import numpy as np
import pytest

from synthbench.tasks.base import IGNORE, Task
from synthbench.tasks.recall._queries import ask
from synthbench.tasks.recall.alias_recall import AliasRecall
from synthbench.tasks.recall.memorization import Memorization
from synthbench.tasks.recall.mqar import Mqar
from tests.tasks._known import Known, assert_shares, last_only, oracle_of, targets_from


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
    inputs, _ = task.sample(np.random.default_rng(9), 40 * num_keys * num_names, 4)
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
    assert max(values, default=0) < (task.keys_used or task.num_keys)
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
    assert max(keys) < (task.tokens_used or task.num_key_tokens) <= task.num_key_tokens <= min(values)
    assert max(values) < (task.num_key_tokens + task.tokens_used if task.tokens_used else task.vocabulary - 1)
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
    assert task.with_replacement or asked_once(inputs, targets, list(writes))
    assert max(writes) < (task.tokens_used or task.num_key_tokens)
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
    assert task.with_replacement or sorted((inputs[place - 1], inputs[place]) for place in asked) == sorted(keys)
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
    "query_first_recall": Known(of_one_pair),
    "mqar": Known(of_pairs, oracle_of(latest_values)),
    "overwrite_recall": Known(of_writes, oracle_of(latest_values)),
    "composite_recall": Known(of_composites, oracle_of(composite_values)),
    "in_context_recall": Known(of_stream),
    "noisy_recall": Known(of_stream),
    "fuzzy_recall": Known(of_motifs, oracle_of(values_of_motifs)),
    "memorization": Known(of_memory),
    "joint_recall": Known(of_contexts),
    "alias_recall": Known(of_aliases, oracle_of(values_of_aliases)),
}


@pytest.mark.parametrize("task", [Mqar(num_pairs=5, tokens_used=19), AliasRecall(num_pairs=5, tokens_used=19)])
def test_where_no_keys_are_left_stretching_adds_blanks(task: Task) -> None:
    longer, length = task.stretched(20, 4)
    inputs, targets = longer.sample(np.random.default_rng(0), 50, length)

    assert (longer, length) == (task, 80)
    assert ((targets != IGNORE).sum(axis=1) == 5).all()
    # Every token of the longer sequences stands in those as trained on too.
    assert set(np.unique(inputs)) <= set(np.unique(task.sample(np.random.default_rng(1), 500, 20).inputs))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_keys_draw_their_places_one_after_the_other_by_the_power_law(alpha: float) -> None:
    keys = np.tile([[[7], [8]]], (20_000, 1, 1))
    inputs = np.zeros((20_000, 6), dtype=np.int64)
    targets = ask(np.random.default_rng(0), inputs, keys, keys[:, :, 0], 0, alpha)
    places = np.stack([(targets == key).argmax(axis=1) // 2 for key in (7, 8)], axis=1)
    weights = [slot ** (alpha - 1) for slot in (1, 2, 3)]

    shares = {
        (i, j): weights[i] / sum(weights) * weights[j] / (sum(weights) - weights[i])
        for i, j in permutations(range(3), 2)
    }

    assert_shares(map(tuple, places.tolist()), shares)
