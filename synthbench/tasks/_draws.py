"""Functions that draw distinct symbols and find earlier copies of a symbol."""

import numpy as np
from jaxtyping import Int


def previous(symbols: Int[np.ndarray, "batch items"]) -> Int[np.ndarray, "batch items"]:
    """Find, for each position, the latest earlier position in the same row that has an equal symbol, or -1."""
    order = np.argsort(symbols, axis=1, kind="stable")
    in_order = np.take_along_axis(symbols, order, axis=1)
    copies = np.full_like(order, -1)
    np.put_along_axis(copies, order[:, 1:], np.where(in_order[:, 1:] == in_order[:, :-1], order[:, :-1], -1), axis=1)
    return copies


def distinct(
    rng: np.random.Generator, batch_size: int, num_draws: int, num_symbols: int
) -> Int[np.ndarray, "batch draws"]:
    """Draw, for each row of the batch, ``num_draws`` distinct symbols from 0..num_symbols-1 in random order.

    The memory needed does not grow with ``num_symbols``.

    Source: Bentley & Floyd (1987).
    """
    # One row per draw, so that the comparison with all earlier draws runs over contiguous memory.
    draws = np.empty((num_draws, batch_size), dtype=np.int64)
    for step in range(num_draws):
        newest = num_symbols - num_draws + step
        drawn = rng.integers(newest + 1, size=batch_size)
        draws[step] = np.where((draws[:step] == drawn).any(axis=0), newest, drawn)
    return rng.permuted(draws.T, axis=1)
