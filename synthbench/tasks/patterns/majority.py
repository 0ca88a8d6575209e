"""The task majority."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._bounds import capped_totals, poisson
from synthbench.tasks._counts import count_symbols
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task

NEGLIGIBLE = 1e-25
"""Size below which a term cannot change a sum of probabilities in double precision."""


@task
@dataclass(frozen=True)
class Majority(Task):
    """At the end, name the most frequent token; in a tie, name the smallest of the most frequent tokens.

    With ``num_symbols=4``::

        inputs    3 1 2 1 2 0
        targets   . . . . . 1

    Tests counting all symbols at once and comparing the counts. Tokens are uniformly random, so ties are common.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as in the published code.
    """

    name: ClassVar = "majority"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    num_symbols: int = option(5, "number of different tokens drawn", low=2, high=1024)

    @property
    def vocab_size(self) -> int:
        """Number of ids: 8 as published, or ``num_symbols`` if larger; ids from ``num_symbols`` on are never used."""
        return max(8, self.num_symbols)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform symbols; the last position asks for the most frequent symbol."""
        inputs = rng.integers(self.num_symbols, size=(batch_size, length))
        # argmax takes the first of equal counts, which is the smallest symbol.
        return Batch(inputs, score_last(count_symbols(inputs, self.num_symbols).argmax(axis=1), length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of always naming symbol 0, the best constant answer because symbol 0 wins every tie."""
        rate = length / self.num_symbols
        counts = poisson(rate, length)
        # Poisson counts, given their total, are those of uniform draws.
        joint = sum(
            counts[count] * capped_totals(self.num_symbols - 1, rate, int(count), length)[length - count]
            for count in np.flatnonzero(counts > NEGLIGIBLE)
        )
        return Bound(float(joint / poisson(float(length), length)[length]))
