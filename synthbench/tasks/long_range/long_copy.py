"""The task long_copy."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.knobs import knob
from synthbench.tasks._copying import sample_copy
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class LongCopy(Task):
    """Name the token just read, in a long sequence.

    With ``vocabulary=8``::

        inputs    3 1 4 1 5
        targets   3 1 4 1 5

    Tests that a mechanism passes its own position through: embedding and output layer suffice, attention must only not
    be in the way.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as coded. The published table used 128
    tokens on one kind of device; the longer sequence is the one that the code describes.
    """

    name: ClassVar = "long_copy"
    source: ClassVar = "slay2026"
    length: ClassVar = 256
    not_tested: ClassVar = "Long range: the answer is the token at the same position, so attention is not needed."
    vocabulary: int = knob(32, "number of tokens", low=2, high=65536)

    @property
    def vocab_size(self) -> int:
        """As many as the knob says."""
        return self.vocabulary

    @property
    def min_length(self) -> int:
        """One token."""
        return 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens, each of which is its own target."""
        return sample_copy(rng, batch_size, length, self.vocabulary)

    def floor(self, length: int) -> Bound:
        """One token in ``vocabulary``, whatever the length."""
        return Bound(1 / self.vocabulary)

    def ceiling(self, length: int) -> Bound:
        """The answer has just been read."""
        return Bound(1.0)
