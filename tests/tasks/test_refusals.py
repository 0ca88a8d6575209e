"""Options that contradict each other, and lengths that no sequence has, are refused in one line."""

import numpy as np
import pytest

from synthbench.errors import UsageError
from synthbench.tasks.base import TASKS, Task


def configured(term: str) -> Task:
    unit, options = TASKS.configured(term)
    return unit(**options)


@pytest.mark.parametrize(
    ("term", "length", "message"),
    [
        ("anbncn:smallest=4,largest=3", 30, "smallest of task 'anbncn' is 4; allowed: 2 to the largest, 3"),
        ("anbncn", 41, "length of task 'anbncn' is 41; allowed: 42 to 16777216"),
        ("copy", 10**20, "allowed: 1 to 16777216"),
        ("kv_recall", 23, "even"),
        ("kv_recall", 130, "63 of them"),
        ("listops:depth=1", 9, "up to 8, for expressions of depth=1 and arguments=5 have no more symbols than 7"),
        (
            "periodic_pattern:num_streams=4,longest_period=11",
            200,
            r"is 4; allowed: up to 3, for .* primes from 5 to 11",
        ),
        ("permutation_hops:symbols_used=3", 56, "length of task .* is 56; allowed: 36 to 55"),
        ("planted_counting:min_count=9,max_count=8", 64, "min_count of .* is 9; allowed: up to max_count=8"),
        ("pointer_chasing", 71, "is 71; allowed: 16"),
        ("pointer_chasing", 72, "is 72; allowed: 16"),
        ("prefix_arithmetic", 9, "length of task 'prefix_arithmetic' is 9; allowed: even ones from 4 on"),
        ("tree_copy:num_templates=3,num_names=2", 149, "num_templates of .* is 3; allowed: up to num_names=2"),
        ("tree_mirror:depth=2", 31, "25 to 30, for trees of depth=2 and arity=3 have no more nodes than 4"),
    ],
)
def test_lengths_that_cannot_be_sampled_are_refused(term: str, length: int, message: str) -> None:
    task = configured(term)
    for call in (task.floor, task.ceiling, lambda refused: task.sample(np.random.default_rng(0), 1, refused)):
        with pytest.raises(UsageError, match=message):
            call(length)
