"""The task histogram."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._bounds import binomial, clip_counts
from synthbench.tasks._counts import count_symbols
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Histogram(Task):
    """At position v, say how often symbol v occurs in the whole sequence; where there is no symbol v, answer 0.

    Positions count from 0. A count above ``largest_count``, here the count 4 of symbol 0, is written as
    ``largest_count``. With ``largest_count=3`` and ``num_symbols=3``::

        inputs    0 1 1 0 2 0 1 0
        targets   3 3 1 0 0 0 0 0

    Tests next to nothing in a causal model, because the model must name the counts before it has read most tokens. The
    zeros after the last count are scored too.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as in the published code.
    """

    name: ClassVar = "histogram"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    not_tested: ClassVar = "Counting: the counts are asked before the tokens are read, and all other targets are zeros."
    largest_count: int = option(15, "largest count that is told apart", low=1, high=65535)
    num_symbols: int = option(5, "number of different tokens drawn", low=2, high=1024)

    @property
    def vocab_size(self) -> int:
        """Number of token ids: ``largest_count + 1`` or ``num_symbols``, whichever is larger."""
        return max(self.largest_count + 1, self.num_symbols)

    @property
    def min_length(self) -> int:
        """Number of positions at which a count is asked: one per symbol."""
        return self.num_symbols

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform symbols; the first targets are the counts of the symbols, and all others are 0."""
        inputs = rng.integers(self.num_symbols, size=(batch_size, length))
        targets = np.zeros_like(inputs)
        targets[:, : self.num_symbols] = np.minimum(count_symbols(inputs, self.num_symbols), self.largest_count)
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of guessing the likeliest count of each symbol, and 0 elsewhere."""
        count = clip_counts(binomial(length, 1 / self.num_symbols), self.largest_count).max()
        return Bound(float((length - self.num_symbols + self.num_symbols * count) / length))

    def ceiling(self, length: int) -> Bound:
        """Return the accuracy of naming the count so far plus the likeliest number of copies still to come."""
        accuracy = float(length - self.num_symbols)
        for position in range(self.num_symbols):
            unseen = binomial(length - 1 - position, 1 / self.num_symbols)
            for num_seen, probability in enumerate(binomial(position + 1, 1 / self.num_symbols)):
                # With the largest count already reached the answer is certain: all that is unseen is clipped.
                accuracy += probability * clip_counts(unseen, max(0, self.largest_count - num_seen)).max()
        return Bound(min(1.0, float(accuracy / length)))
