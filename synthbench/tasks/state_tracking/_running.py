"""Running products along sequences: at each position, the product of all factors so far."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

Factors = Int[np.ndarray, "batch length *parts"]


def running(factors: Factors, multiply: Callable[[Factors, Factors], Factors], window: int | None = None) -> Factors:
    """Compute the product of all factors up to each position, with log2(length) multiplications of whole arrays.

    Args:
        factors: One factor per position, each a number or an array of numbers.
        multiply: Associative function that multiplies an array of left factors by an array of right factors.
        window: Number of latest factors in each product, a power of 2; None for all factors so far.
    """
    length = factors.shape[1]
    products = factors.copy()
    width = 1  # of the windows whose products are known
    while width < min(length, window or length):
        products[:, width:] = multiply(products[:, :-width], products[:, width:])
        width *= 2
    return products
