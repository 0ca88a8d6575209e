"""The task distant_match."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class DistantMatch(Task):
    """In the middle of the sequence, name the first token.

    With ``vocabulary=8``::

        inputs    3 1 4 1 5 0
        targets   . . . 3 . .

    Tests recall of the token at one fixed position, across a distance of half the sequence. A sequence that begins with
    0 is not scored at all.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "distant_match"
    source: ClassVar = "slay2026"
    length: ClassVar = 128
    min_length: ClassVar = 2  # the first token and the position that asks for it
    not_tested: ClassVar = "Matching by content, or over the whole length: position 0 is asked at the middle position."
    vocabulary: int = option(32, "number of tokens", low=2, high=65536)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens; the middle position asks for the first token, unless the first token is 0."""
        inputs = rng.integers(self.vocabulary, size=(batch_size, length))
        targets = np.full_like(inputs, IGNORE)
        targets[:, length // 2] = np.where(inputs[:, 0] == 0, IGNORE, inputs[:, 0])
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess among all tokens but 0, which is never an answer."""
        return Bound(1 / (self.vocabulary - 1))
