"""The task bigram."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.tasks.base import Batch, Bound, Task, task

TABLE = np.array(
    [12, 15, 21, 0, 3, 27, 3, 7, 9, 19, 21, 18, 4, 23, 6, 24, 24, 12, 26, 1, 6, 7, 23, 14, 24, 17, 5, 25, 13, 8, 9, 20]
)
"""Answer to each token: the published table, which the code of the paper draws from a generator seeded with 0."""


@task
@dataclass(frozen=True)
class Bigram(Task):
    """At each position, name the answer that a fixed table gives for the token just read.

    ::

        inputs     3  1  4  1  0
        targets    0 15  3 15 12

    Tests whether a model learns a fixed map from tokens to answers. The answer depends only on the current token.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as in the published code. The published code
    reseeds the global generator on each call, so all its batches are the same. Here, every batch has new inputs.
    """

    name: ClassVar = "bigram"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    not_tested: ClassVar = "Bigram statistics: the answer is a function of the token at the same position."

    @property
    def vocab_size(self) -> int:
        """Number of token ids and of answers: the number of entries of the table."""
        return len(TABLE)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens; the target of each token is its entry in the table."""
        inputs = rng.integers(len(TABLE), size=(batch_size, length))
        return Batch(inputs, TABLE[inputs])

    def floor(self, length: int) -> Bound:
        """Return the frequency of the most frequent entry of the table."""
        return Bound(float(np.bincount(TABLE).max() / len(TABLE)))
