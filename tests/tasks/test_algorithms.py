"""The algorithm tasks: targets recomputed from the inputs alone, and solved from prefixes."""

from collections import Counter
from itertools import product
from typing import Any

import numpy as np

from synthbench.tasks.algorithms.bucket_sort import BucketSort
from synthbench.tasks.algorithms.grid_neighbours import GridNeighbours
from synthbench.tasks.algorithms.periodic_pattern import PeriodicPattern
from synthbench.tasks.algorithms.planted_counting import PlantedCounting
from synthbench.tasks.base import IGNORE
from tests.tasks._known import Known, last_only, oracle_of, rearranged, transduced


def total(task: Any, inputs: list[int]) -> list[set[int]]:
    size = inputs.index(4)
    numbers = "".join(map(str, inputs[:size])).split("2")
    num_digits = max(map(len, numbers)) + 1
    first, second = (int(number[::-1], 2) for number in numbers)
    digits = f"{first + second:0{num_digits}b}"[::-1]
    assert 3 * min(map(len, numbers)) >= size - 1
    return transduced(task, inputs, size, [*map(int, digits), 3])


def counted(task: Any, inputs: list[int]) -> list[set[int]]:
    *text, separator, asked = inputs
    assert separator == max(task.num_symbols, task.separator)
    assert max([*text, asked]) < task.num_symbols
    assert task.min_count <= text.count(asked) <= task.max_count
    return last_only(inputs, text.count(asked))


def most_frequent(task: Any, inputs: list[int]) -> list[set[int]]:
    (symbol, most), *others = [*Counter(inputs).most_common(2), (-1, 0)]
    assert most - others[0][1] == task.margin
    return last_only(inputs, symbol)


def primes(task: Any) -> list[int]:
    numbers = range(task.shortest_period, task.longest_period + 1)
    return [number for number in numbers if all(number % divisor for divisor in range(2, number))]


def continued(task: Any, inputs: list[int]) -> list[set[int]]:
    targets: list[set[int]] = []
    allowed = primes(task)
    for place in range(1, len(inputs) + 1):
        seen = inputs[place % task.num_streams : place : task.num_streams]
        is_asked = len(seen) >= 2 * task.longest_period
        periods = [period for period in allowed if is_asked and seen[period:] == seen[:-period]]
        targets.append({seen[-period] for period in periods} if is_asked else {IGNORE})
        assert len(targets[-1]) == 1
    return targets


def neighbours(task: Any, inputs: list[int]) -> list[set[int]]:
    """The answers to all questions that follow the grid so far."""
    first_direction = task.vocab_size - 4
    num_cells = next((place for place, token in enumerate(inputs) if token >= first_direction), len(inputs))
    rows = [inputs[start : min(start + task.width, num_cells)] for start in range(0, num_cells, task.width)]
    targets = [{IGNORE}] * num_cells
    for direction, anchor in zip(inputs[num_cells::2], inputs[num_cells + 1 :: 2], strict=True):
        [(row, column)] = [(row, symbols.index(anchor)) for row, symbols in enumerate(rows) if anchor in symbols]
        down, right = ((-1, 0), (1, 0), (0, -1), (0, 1))[direction - first_direction]
        assert row + down >= 0
        assert column + right >= 0
        targets += [{IGNORE}, {rows[row + down][column + right]}]
    return targets


def all_neighbours(task: Any, inputs: list[int]) -> list[set[int]]:
    targets = neighbours(task, inputs)
    assert targets.count({IGNORE}) == len(inputs) - task.num_queries
    assert task.vocab_size - 4 - task.num_symbols == max(task.num_queries, task.num_anchors)
    return targets


KNOWN = {
    "bucket_sort": Known(rearranged(sorted), is_padded=True),
    "binary_addition": Known(total, is_padded=True),
    "planted_counting": Known(counted),
    "planted_majority": Known(most_frequent),
    "periodic_pattern": Known(continued),
    "grid_neighbours": Known(all_neighbours, oracle_of(neighbours)),
}


def test_bucket_sort_is_guessed_by_one_of_the_most_frequent_symbols_in_each_slot() -> None:
    strings = np.sort(list(product(range(4), repeat=3)), axis=1)
    counts = np.array([np.bincount(slot, minlength=4) for slot in strings.T])
    assert (counts[1] == counts[1].max()).sum() == 2, "two are equally frequent in the middle"

    task = BucketSort(shortest=3, num_symbols=4)
    (guesses,) = task.shortcuts(task.sample(np.random.default_rng(0), 1, 7).inputs).values()

    assert (counts[range(3), guesses[0, 4:]] == counts.max(axis=1)).all()


def test_queries_of_grid_neighbours_are_rows_below_the_grid_of_which_the_last_may_be_cut() -> None:
    coordinates = GridNeighbours(width=3, num_queries=2).coordinates(12)

    assert coordinates[:8].tolist() == [[place // 3, place % 3] for place in range(8)]
    assert coordinates[8:].tolist() == [[3, 0], [3, 1], [4, 0], [4, 1]]


def test_no_two_levels_of_periodic_pattern_share_a_period() -> None:
    found = [period for level in PeriodicPattern.ladder(longest=1024) for period in primes(level.task)]

    assert found == primes(PeriodicPattern(shortest_period=3, longest_period=251))


def test_no_two_levels_of_planted_counting_share_a_count() -> None:
    counts = [
        set(level.task.sample(np.random.default_rng(0), 500, level.length).targets[:, -1].tolist())
        for level in PlantedCounting.ladder(longest=128)
    ]

    assert sorted(count for of_level in counts for count in of_level) == list(range(33))
