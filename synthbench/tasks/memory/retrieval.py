"""The task retrieval."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Retrieval(Task):
    """At the end, name the needle, a token that is the same in every sequence.

    With ``vocabulary=8``, the needle is 7 and the query 6::

        inputs    3 1 7 1 5 6
        targets   . . . . . 7

    Tests nothing: the target is a constant, so the bias of the output layer suffices.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "retrieval"
    source: ClassVar = "slay2026"
    length: ClassVar = 64
    min_length: ClassVar = 3  # the needle, one token between and the query
    not_tested: ClassVar = "Retrieval: the target is the same token in every sequence, so nothing has to be found."
    vocabulary: int = option(64, "number of tokens, the needle and the query among them", low=3, high=65536)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens, hide the needle at a random place before the last two tokens, and end with the query."""
        needle, query = self.vocabulary - 1, self.vocabulary - 2
        inputs = rng.integers(query, size=(batch_size, length))
        inputs[np.arange(batch_size), rng.integers(length - 2, size=batch_size)] = needle
        inputs[:, -1] = query
        return Batch(inputs, score_last(np.full(batch_size, needle), length))

    def floor(self, length: int) -> Bound:
        """Return 1: the needle is always the answer."""
        return Bound(1.0)
