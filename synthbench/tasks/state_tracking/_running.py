"""Running products along sequences: at each position, the product of all factors so far."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

Factors = Int[np.ndarray, "batch length *parts"]


def running(factors: Factors, multiply: Callable[[Factors, Factors], Factors], window: int | None = None) -> Factors:
    """Compute the product of the factors up to each position, in log2(length) multiplications of whole arrays.

    Args:
        factors: One factor per position, each a number or an array of numbers.
        multiply: Function that multiplies two arrays of factors, the left and the right ones; it must be associative.
        window: Number of latest factors to multiply, a power of 2; None for all factors so far.
    """
    length = factors.shape[1]
    products = factors.copy()
    width = 1  # of the windows whose products are known
    while width < min(length, window or length):
        products[:, width:] = multiply(products[:, :-width], products[:, width:])
        width *= 2
    return products
