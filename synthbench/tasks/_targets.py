"""Functions that build the targets of several tasks."""

import numpy as np
from jaxtyping import Int

from synthbench.tasks.base import IGNORE, Tokens


def score_last(answers: Int[np.ndarray, " batch"], length: int) -> Tokens:
    """Build targets that ask for an answer at the last position only."""
    targets = np.full((len(answers), length), IGNORE, dtype=np.int64)
    targets[:, -1] = answers
    return targets


def score_at(
    answers: Int[np.ndarray, "batch answers"], positions: Int[np.ndarray, "batch answers"], length: int
) -> Tokens:
    """Build targets that ask for answers at the given positions of each sequence; an answer may be ``IGNORE``."""
    targets = np.full((len(answers), length), IGNORE, dtype=np.int64)
    np.put_along_axis(targets, positions, answers, axis=1)
    return targets
