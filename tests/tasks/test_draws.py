"""Drawing distinct symbols, and finding equal ones."""

from collections import Counter
from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from synthbench.tasks._draws import distinct, previous

SEEDS = st.integers(0, 2**32 - 1)


def test_distinct_draws_come_in_every_order_alike() -> None:
    drawn = distinct(np.random.default_rng(0), 12_000, 2, 4)
    counts = Counter(map(tuple, drawn.tolist()))

    assert set(counts) == set(permutations(range(4), 2))
    assert all(abs(count - 1000) < 4 * 1000**0.5 for count in counts.values())


@given(seed=SEEDS, num_items=st.integers(1, 20), num_symbols=st.integers(1, 9))
def test_previous_finds_the_latest_copy(seed: int, num_items: int, num_symbols: int) -> None:
    symbols = np.random.default_rng(seed).integers(num_symbols, size=(3, num_items))

    for row, copies in zip(symbols.tolist(), previous(symbols), strict=True):
        naive = [max((j for j in range(i) if row[j] == row[i]), default=-1) for i in range(num_items)]
        assert copies.tolist() == naive
