"""What copy and long_copy share: they differ in their length only."""

import numpy as np

from synthbench.tasks.base import Batch


def sample_copy(rng: np.random.Generator, batch_size: int, length: int, vocabulary: int) -> Batch:
    """Draw uniform tokens, each of which is its own target."""
    inputs = rng.integers(vocabulary, size=(batch_size, length))
    return Batch(inputs, inputs.copy())
