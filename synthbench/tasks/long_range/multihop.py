"""The task multihop."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Multihop(Task):
    """At the end, name the token that followed the second marker.

    With ``vocabulary=8``, the first marker is 6 and the second is 7::

        inputs    3 6 4 7 5 0 2 1 0
        targets   . . . . . . . . 5

    Tests one hop: find the second marker, and name the token after it. Each marker occurs once. The first marker stands
    in the first third of the sequence, the second marker in the middle third.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code. Their documentation
    describes a chain of three pointers, but their code has two markers and no chain.
    """

    name: ClassVar = "multihop"
    source: ClassVar = "slay2026"
    length: ClassVar = 64
    min_length: ClassVar = 3  # one position in each third
    not_tested: ClassVar = "Several hops: the first marker has no bearing on the answer, which follows the second."
    vocabulary: int = option(32, "number of tokens, the two markers among them", low=3, high=65536)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens; put the first marker into the first third and the second into the middle third."""
        third, rows = length // 3, np.arange(batch_size)
        first_marker, second_marker = self.vocabulary - 2, self.vocabulary - 1
        inputs = rng.integers(first_marker, size=(batch_size, length))
        second = rng.integers(third, 2 * third, size=batch_size)
        inputs[rows, rng.integers(third, size=batch_size)] = first_marker
        inputs[rows, second] = second_marker
        return Batch(inputs, score_last(inputs[rows, second + 1], length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess among all tokens but the markers."""
        return Bound(1 / (self.vocabulary - 2))
