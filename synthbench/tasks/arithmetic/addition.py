"""The task addition."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._bounds import binomial
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Addition(Task):
    """At the end, name the sum of the bits modulo ``vocabulary``.

    With ``vocabulary=4``, the sum 5 is written as 1::

        inputs    1 0 1 1 1 1
        targets   . . . . . 1

    Tests counting. With the published length (16) and the default ``vocabulary`` (32), the sum is always below
    ``vocabulary``, so the answer is the number of ones.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "addition"
    source: ClassVar = "slay2026"
    length: ClassVar = 16
    not_tested: ClassVar = (
        "Addition of numbers or modulo anything: the answer is the number of ones, below the modulus."
    )
    vocabulary: int = option(32, "number of output classes, which is the modulus", low=2, high=65536)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw fair bits; the last position asks for their sum modulo ``vocabulary``."""
        inputs = rng.integers(2, size=(batch_size, length))
        return Batch(inputs, score_last(inputs.sum(axis=1) % self.vocabulary, length))

    def floor(self, length: int) -> Bound:
        """Return the probability of the likeliest answer; the sum of the bits has a binomial distribution."""
        classes = np.arange(length + 1) % self.vocabulary
        return Bound(float(np.bincount(classes, weights=binomial(length, 0.5)).max()))
