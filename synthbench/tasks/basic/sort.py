"""The task sort."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._bounds import at_least
from synthbench.tasks.base import Batch, Bound, Task, task

STANDARD_ERROR = 2e-4
"""Standard error at which the ceiling's average over sampled inputs is accurate enough."""


@task
@dataclass(frozen=True)
class Sort(Task):
    """At the t-th position, name the t-th smallest token of the whole sequence, while the sequence is still being read.

    With ``vocabulary=8``::

        inputs    3 1 4 1 5
        targets   1 1 3 4 5

    Tests estimating the sorted order of all tokens from the tokens read so far. The tokens that have not been read yet
    can change the answer, so in general only the last answer is certain.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "sort"
    source: ClassVar = "slay2026"
    length: ClassVar = 16
    vocabulary: int = option(32, "number of tokens", low=2, high=4096)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens; the targets are the same tokens in ascending order."""
        inputs = rng.integers(self.vocabulary, size=(batch_size, length))
        return Batch(inputs, np.sort(inputs, axis=1))

    def floor(self, length: int) -> Bound:
        """Return the mean accuracy of the best fixed answers, one per position, chosen without the input.

        Probabilities come from order statistics: the answer at position t (from 0) is at most v exactly if more than t
        tokens are at most v.
        """
        at_most = at_least(length, self.vocabulary)[:, 1:]
        return Bound(float(np.diff(at_most, axis=0, prepend=0).max(axis=0).mean()))

    def ceiling(self, length: int) -> Bound:
        """Estimate, on sampled inputs, the accuracy of naming the likeliest answer given the tokens read so far."""
        return _ceiling(length, self.vocabulary)


@lru_cache(maxsize=64)
def _ceiling(length: int, vocabulary: int) -> Bound:
    rng = np.random.Generator(np.random.Philox(0))
    tokens = np.arange(vocabulary)
    chunk_size = max(512, 2**21 // (length * vocabulary))
    accuracy = np.empty(0)
    # Average at least two chunks, so that accidentally equal values within a small chunk do not end the loop.
    while len(accuracy) <= chunk_size or accuracy.std() > STANDARD_ERROR * len(accuracy) ** 0.5:
        inputs = rng.integers(vocabulary, size=(chunk_size, length))
        num_below = np.zeros((chunk_size, vocabulary), dtype=np.int64)
        chunk = np.zeros(chunk_size)
        for position in range(length):
            # One column per number of tokens that must still follow; more than the remaining positions is impossible.
            table = np.zeros((vocabulary, length + 1))
            table[:, : length - position] = at_least(length - 1 - position, vocabulary)
            num_below += inputs[:, position, None] <= tokens
            at_most = table[tokens, position + 1 - num_below]
            chunk += np.diff(at_most, axis=1, prepend=0).max(axis=1)
        accuracy = np.append(accuracy, chunk / length)
    return Bound(float(accuracy.mean()), standard_error=float(accuracy.std() / len(accuracy) ** 0.5))
