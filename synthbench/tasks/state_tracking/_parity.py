"""Functions of the parity tasks: random bits, parities and their probabilities."""

import numpy as np
from jaxtyping import Float, Int

from synthbench.tasks.base import Tokens
from synthbench.tasks.state_tracking._running import running


def draw_bits(rng: np.random.Generator, shape: tuple[int, int], one_rate: float) -> Tokens:
    """Draw independent bits that are 1 with probability ``one_rate``."""
    return (rng.random(shape) < one_rate).astype(np.int64)


def running_parity(bits: Tokens) -> Tokens:
    """Compute, at each position, the parity of the number of ones so far: 1 if the number is odd."""
    parity: Tokens = np.bitwise_xor.accumulate(bits, axis=1)
    return parity


def latest_parities(bits: Tokens) -> dict[str, Tokens]:
    """Compute two guesses at each position: the parity of the latest bit, and the parity of the latest four bits."""
    return {"latest bit": bits.copy(), "latest four bits": running(bits, np.bitwise_xor, window=4)}


def likelier_parity(num_bits: Int[np.ndarray, " cases"], one_rate: float) -> Float[np.ndarray, " cases"]:
    """Return, for each number of independent bits, the probability of the likelier parity of their sum."""
    # Let the sign of a bit be -1 for 1, else 1: the expectation of the product is the product of the expectations.
    likelier: Float[np.ndarray, " cases"] = (1 + np.abs(1 - 2 * one_rate) ** num_bits) / 2
    return likelier
