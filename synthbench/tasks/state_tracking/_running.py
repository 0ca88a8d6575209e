"""Running products along a batch of sequences, at all positions at once."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

Factors = Int[np.ndarray, "batch length *parts"]


def running(factors: Factors, multiply: Callable[[Factors, Factors], Factors], window: int | None = None) -> Factors:
    """Multiply the factors up to each position, in log2(length) multiplications of the whole batch.

    Args:
        factors: One factor per position, each a number or an array of numbers.
        multiply: Associative product of two arrays of factors, the left and the right ones.
        window: Number of latest factors to multiply, a power of 2; None for all.
    """
    length = factors.shape[1]
    products = factors.copy()
    width = 1  # of the windows whose products are known
    while width < min(length, window or length):
        products[:, width:] = multiply(products[:, :-width], products[:, width:])
        width *= 2
    return products
