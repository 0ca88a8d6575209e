"""Functions, shared by several tasks, that build arrays of targets."""

import numpy as np
from jaxtyping import Int

from synthbench.tasks.base import IGNORE, Tokens


def score_last(answers: Int[np.ndarray, " batch"], length: int) -> Tokens:
    """Build targets with an answer at the last position of each sequence, and ``IGNORE`` (not scored) elsewhere."""
    targets = np.full((len(answers), length), IGNORE, dtype=np.int64)
    targets[:, -1] = answers
    return targets


def score_at(
    answers: Int[np.ndarray, "batch answers"], positions: Int[np.ndarray, "batch answers"], length: int
) -> Tokens:
    """Build targets with answers at the given positions of each sequence, and ``IGNORE`` (not scored) elsewhere.

    An answer may be ``IGNORE``, too.
    """
    targets = np.full((len(answers), length), IGNORE, dtype=np.int64)
    np.put_along_axis(targets, positions, answers, axis=1)
    return targets
