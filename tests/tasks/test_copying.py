"""The copying tasks: targets recomputed from the inputs alone, and solved from prefixes."""

from typing import Any

import numpy as np
import pytest

from synthbench.tasks.base import IGNORE
from synthbench.tasks.copying.palindrome import Palindrome
from tests.tasks._known import Known, last_only, oracle_of, rearranged, targets_from


def mirrored(task: Any, inputs: list[int]) -> list[set[int]]:
    size = inputs.index(task.num_symbols)
    following = inputs[:size][:0:-1] + [task.num_symbols + 1] * len(inputs)
    assert size >= task.shortest
    assert inputs[size + 1 :] == following[: len(inputs) - size - 1]
    targets = targets_from(inputs, size, inputs[:size][::-1])
    return targets if task.block == 1 else [target | {IGNORE} for target in targets]


def restored(task: Any, inputs: list[int]) -> list[set[int]]:
    end = inputs.index(task.num_symbols + 1)
    first, second = inputs[: end // 2], inputs[end // 2 : end]
    unlike = [{one, other} for one, other in zip(first, second, strict=True) if one != other]
    differing = [pair - {task.num_symbols} for pair in unlike if task.num_symbols in pair]
    assert (first + second).count(task.num_symbols) == 1
    assert (first + second).count(task.num_symbols + 2) == len(unlike) - 1 == min(task.num_erased, len(first) - 1)
    assert len(differing) == len(differing[0]) == 1
    assert max(differing[0]) < task.num_symbols
    assert set(inputs[end + 1 :]) <= {task.num_symbols + 2}
    return targets_from(inputs, end, [*differing[0]])


def selected(task: Any, inputs: list[int]) -> list[set[int]]:
    """The symbols before the separator, from it on."""
    end = inputs.index(task.num_symbols + 1)
    return targets_from(inputs, end + 1, [token for token in inputs[:end] if token != task.num_symbols])


def all_selected(task: Any, inputs: list[int]) -> list[set[int]]:
    *unasked, separator = inputs[: -task.num_tokens]
    assert max(unasked) <= task.num_symbols
    assert [separator, *inputs[-task.num_tokens :]] == [task.num_symbols + 1] + [task.num_symbols] * task.num_tokens
    assert len(unasked) - unasked.count(task.num_symbols) == task.num_tokens
    return selected(task, inputs)


def everything(task: Any, inputs: list[int]) -> list[set[int]]:
    assert inputs.index(task.num_symbols) == len(inputs) - 1
    return targets_from(inputs, 0, inputs[:-1])


def followers(string: list[int], gram: list[int]) -> list[int]:
    starts = range(len(string) - len(gram))
    return [string[start + len(gram)] for start in starts if string[start : start + len(gram)] == gram]


def looked_up(task: Any, inputs: list[int]) -> list[set[int]]:
    string, separator, gram = inputs[: -task.order - 1], inputs[-task.order - 1], inputs[-task.order :]
    assert separator == task.num_symbols
    assert max(string + gram) < task.num_symbols
    (answer,) = set(followers(string, gram))
    # Plants agree with all of the gram but its first token, or but its last.
    for part, num_plants in ((gram[1:], task.num_decoys), (gram[:-1], task.num_openings)):
        assert task.order == 1 or len(followers(string, part)) > num_plants
    return last_only(inputs, answer)


KNOWN = {
    "string_copy": Known(rearranged(list), is_padded=True),
    "reverse_string": Known(rearranged(lambda string: string[::-1]), is_padded=True),
    "duplicate_string": Known(rearranged(lambda string: string + string), is_padded=True),
    "odds_first": Known(rearranged(lambda string: string[0::2] + string[1::2]), is_padded=True),
    "palindrome": Known(mirrored, is_padded=True),
    "missing_duplicate": Known(restored, is_padded=True),
    "selective_copying": Known(all_selected, oracle_of(selected)),
    "bottleneck_compression": Known(everything, lambda _, inputs: inputs),
    "ngram_lookup": Known(looked_up),
}


@pytest.mark.parametrize("block", [2, 8])
def test_blocks_of_a_palindrome_differ_in_what_is_asked_only(block: int) -> None:
    task = Palindrome(num_symbols=2, shortest=2 * block, block=block)
    inputs, targets = task.sample(np.random.default_rng(0), 32, 8 * block + 1)

    for sequence, asked in zip(inputs.tolist(), targets.tolist(), strict=True):
        size = sequence.index(2)
        own = {2 * size - 1 - position for position, answer in enumerate(asked) if answer != IGNORE}
        assert all(asked[2 * size - 1 - place] == sequence[place] for place in own)
        [phase] = {place % block for place in own}
        assert own == set(range(phase, size, block))
        for place in set(range(size - block)) - own:
            assert sequence[place] == sequence[place + block]
