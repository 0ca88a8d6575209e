"""Targets that several tasks share."""

import numpy as np
from jaxtyping import Int

from synthbench.tasks.base import IGNORE


def score_last(answers: Int[np.ndarray, " batch"], length: int) -> Int[np.ndarray, "batch length"]:
    """Targets that ask for an answer at the last position only."""
    targets = np.full((len(answers), length), IGNORE, dtype=np.int64)
    targets[:, -1] = answers
    return targets
