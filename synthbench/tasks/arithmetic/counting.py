"""The task counting."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._bounds import binomial, clip_counts
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Counting(Task):
    """At the end, name the number of tokens equal to 0, capped at ``largest_count``.

    With ``num_symbols=3``::

        inputs    0 1 2 0 0 2
        targets   . . . . . 3

    Tests counting one symbol among others.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "counting"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    largest_count: int = option(31, "largest count that is told apart", low=1, high=65535)
    num_symbols: int = option(10, "number of different tokens drawn", low=2, high=1024)

    @property
    def vocab_size(self) -> int:
        """Number of symbols, or of possible answers (0 to ``largest_count``), whichever is larger."""
        return max(self.largest_count + 1, self.num_symbols)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform symbols; the last position asks for the number of zeros."""
        inputs = rng.integers(self.num_symbols, size=(batch_size, length))
        answers = np.minimum((inputs == 0).sum(axis=1), self.largest_count)
        return Batch(inputs, score_last(answers, length))

    def floor(self, length: int) -> Bound:
        """Return the probability of the likeliest answer; the number of zeros has a binomial distribution."""
        return Bound(float(clip_counts(binomial(length, 1 / self.num_symbols), self.largest_count).max()))
