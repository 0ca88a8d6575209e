"""The symbol of some steps ago."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks import IGNORE, Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Lagged(Task):
    """Repeat the symbol of some steps ago.

    With ``lag=2`` (``.`` is not scored)::

        inputs    3 1 4 1 5
        targets   . . 3 1 4
    """

    name: ClassVar = "lagged"
    source: ClassVar = "unpublished"
    length: ClassVar = 32
    num_symbols: int = option(8, "symbols, drawn uniformly", low=2, high=1024)
    lag: int = option(4, "steps between a symbol and its repetition", low=1, high=256)

    @property
    def vocab_size(self) -> int:
        """The symbols."""
        return self.num_symbols

    @property
    def min_length(self) -> int:
        """One scored token."""
        return self.lag + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw ``batch_size`` sequences of ``length`` symbols."""
        self.check_length(length)
        inputs = rng.integers(self.num_symbols, size=(batch_size, length))
        targets = np.full_like(inputs, IGNORE)
        targets[:, self.lag :] = inputs[:, : -self.lag]
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """One symbol in ``num_symbols``: the best that is done without looking."""
        self.check_length(length)
        return Bound(1 / self.num_symbols)
