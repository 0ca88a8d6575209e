"""The task modular."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Modular(Task):
    """At the end, name the sum of the tokens modulo ``modulus``.

    With ``modulus=5``, the sum 13 is written as 3::

        inputs    3 1 4 1 4
        targets   . . . . 3

    Tests a sum over all positions, in which a change of any token changes the answer. With ``modulus=2``, the answers
    are the same as in the task ``parity``.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "modular"
    source: ClassVar = "slay2026"
    length: ClassVar = 16
    modulus: int = option(7, "number of residues, which is the number of different tokens", low=2, high=65536)

    @property
    def vocab_size(self) -> int:
        """Number of token ids and answers: the residues, and one id that never occurs, as in the published code."""
        return self.modulus + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform residues; the last position asks for their sum modulo ``modulus``."""
        inputs = rng.integers(self.modulus, size=(batch_size, length))
        return Batch(inputs, score_last(inputs.sum(axis=1) % self.modulus, length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess: a sum of uniform residues is uniform."""
        return Bound(1 / self.modulus)
