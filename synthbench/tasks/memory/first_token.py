"""The task first_token."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class FirstToken(Task):
    """At the end, name the first token.

    With ``vocabulary=8``::

        inputs    3 1 4 1 5
        targets   . . . . 3

    Tests recall from one fixed position across the whole sequence.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "first_token"
    source: ClassVar = "slay2026"
    length: ClassVar = 64
    min_length: ClassVar = 2  # the first token and the position that asks for it
    not_tested: ClassVar = "Addressing by content: the answer always stands at position 0."
    vocabulary: int = option(32, "number of tokens", low=2, high=65536)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens; the last position asks for the first token."""
        inputs = rng.integers(self.vocabulary, size=(batch_size, length))
        return Batch(inputs, score_last(inputs[:, 0], length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.vocabulary)
