"""Running products along a batch of sequences, at all positions at once."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

Factors = Int[np.ndarray, "batch length *parts"]


def running(factors: Factors, multiply: Callable[[Factors, Factors], Factors], window: int | None = None) -> Factors:
    """Multiply the factors up to each position, in log2(length) multiplications of the whole batch.

    Args:
        factors: One at each position; a factor may be an array of numbers.
        multiply: An associative product of the factors of one array (left) and another (right).
        window: Number of latest factors that count, a power of 2. All, if not given.
    """
    length = factors.shape[1]
    products = factors.copy()
    width = 1  # of the windows whose products are known
    while width < min(length, window or length):
        products[:, width:] = multiply(products[:, :-width], products[:, width:])
        width *= 2
    return products
