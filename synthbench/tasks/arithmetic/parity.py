"""The task parity."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Parity(Task):
    """At the end, answer 1 if the number of ones is odd, else 0.

    ::

        inputs    1 0 1 1 0
        targets   . . . . 1

    Tests a sum over all positions, in which a change of any token changes the answer.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "parity"
    source: ClassVar = "slay2026"
    length: ClassVar = 32

    @property
    def vocab_size(self) -> int:
        """Number of token ids, 2: the bits 0 and 1."""
        return 2

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw fair bits; the last position asks for their sum modulo 2."""
        inputs = rng.integers(2, size=(batch_size, length))
        return Batch(inputs, score_last(inputs.sum(axis=1) % 2, length))

    def floor(self, length: int) -> Bound:
        """Return one half, the accuracy of guessing 0 or 1 with equal chance."""
        return Bound(0.5)
