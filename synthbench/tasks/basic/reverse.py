"""The task reverse."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Reverse(Task):
    """Write the sequence backwards while it is still being read.

    With ``vocabulary=8``::

        inputs    3 1 4 2 5 0
        targets   0 5 2 4 1 3

    Tests recall by position, at every distance. A causal model can only guess the first half of the answers, because
    they are tokens that it has not read yet.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "reverse"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    vocabulary: int = option(32, "number of tokens", low=2, high=65536)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens; the targets are the same tokens from last to first."""
        inputs = rng.integers(self.vocabulary, size=(batch_size, length))
        return Batch(inputs, inputs[:, ::-1].copy())

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.vocabulary)

    def ceiling(self, length: int) -> Bound:
        """Return the accuracy of uniform guesses in the first half and certain answers in the second half."""
        num_future = length // 2
        return Bound((length - num_future + num_future / self.vocabulary) / length)
