"""The task copy."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Copy(Task):
    """Name the token just read.

    With ``vocabulary=8``::

        inputs    3 1 4 1 5
        targets   3 1 4 1 5

    Tests whether a mechanism passes each position's own token to the output. The embedding and output layers alone
    solve the task if the mechanism does not interfere.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "copy"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    not_tested: ClassVar = "Recall: the answer is the token at the same position, so attention is not needed."
    vocabulary: int = option(32, "number of tokens", low=2, high=65536)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens, each of which is its own target."""
        inputs = rng.integers(self.vocabulary, size=(batch_size, length))
        return Batch(inputs, inputs.copy())

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.vocabulary)
