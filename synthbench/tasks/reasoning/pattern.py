"""The task pattern."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Pattern(Task):
    """Continue a random pattern that repeats: at each position name the next token.

    With ``vocabulary=8`` and ``period=3``::

        inputs    3 1 4 3 1 4 3
        targets   1 4 3 1 4 3 1

    Tests recall at one fixed distance. In the first period, the next token can only be guessed. The last position of
    the period is an exception, since the pattern then begins again with its first token.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as in the published code.
    """

    name: ClassVar = "pattern"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    vocabulary: int = option(16, "number of tokens", low=2, high=65536)
    period: int = option(4, "number of tokens after which the pattern repeats", low=1, high=65536)

    @property
    def min_length(self) -> int:
        """Number of tokens in one period."""
        return self.period

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw one period of uniform tokens and repeat it."""
        pattern = rng.integers(self.vocabulary, size=(batch_size, self.period))
        sequence = pattern[:, np.arange(length + 1) % self.period]
        return Batch(sequence[:, :-1].copy(), sequence[:, 1:].copy())

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.vocabulary)

    def ceiling(self, length: int) -> Bound:
        """Return the accuracy of guessing the first ``period - 1`` answers and knowing all later ones."""
        num_unseen = self.period - 1
        return Bound((length - num_unseen + num_unseen / self.vocabulary) / length)
