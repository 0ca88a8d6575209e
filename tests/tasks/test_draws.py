"""Drawing distinct symbols, and finding equal ones."""

from collections import Counter
from itertools import permutations

import numpy as np

from synthbench.tasks._draws import distinct


def test_distinct_draws_come_in_every_order_alike() -> None:
    drawn = distinct(np.random.default_rng(0), 12_000, 2, 4)
    counts = Counter(map(tuple, drawn.tolist()))

    assert set(counts) == set(permutations(range(4), 2))
    assert all(abs(count - 1000) < 4 * 1000**0.5 for count in counts.values())
