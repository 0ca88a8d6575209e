"""A function that counts symbols in a batch."""

import numpy as np
from jaxtyping import Int

from synthbench.tasks.base import Tokens


def count_symbols(inputs: Tokens, num_symbols: int) -> Int[np.ndarray, "batch symbols"]:
    """Count each of the symbols 0..num_symbols-1 in each sequence; sequences must contain only these symbols."""
    # One bin for each pair of a sequence and a symbol: a single pass over the tokens, whatever the number of symbols.
    bins = inputs + num_symbols * np.arange(len(inputs))[:, None]
    return np.bincount(bins.ravel(), minlength=len(inputs) * num_symbols).reshape(len(inputs), num_symbols)
