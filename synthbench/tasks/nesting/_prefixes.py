"""Base class of tasks that ask which symbols may follow, after each symbol of a word."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task


@dataclass(frozen=True)
class NextSymbols(Task):
    """Base class of tasks that show the beginning of a word and ask, after each symbol, which symbols may follow.

    Each set of symbols is one answer (one output class), so a model must get the whole set right. If a model is trained
    on levels of difficulty, tests on longer sequences score only positions beyond the trained length.
    """

    unscored: int = option(0, "number of positions at the beginning that are not scored", low=0, high=65536)

    @abstractmethod
    def draw(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw beginnings of words; the target at each position is the class of the set of symbols that may follow."""

    @abstractmethod
    def best_guess(self, length: int) -> Float[np.ndarray, " length"]:
        """Return the probability of the likeliest set of next symbols at each position."""

    @property
    def min_length(self) -> int:
        """Number of tokens up to the first scored position."""
        return self.unscored + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw beginnings of words with targets at all positions except the first ``unscored`` positions."""
        inputs, targets = self.draw(rng, batch_size, length)
        targets[:, : self.unscored] = IGNORE
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of always naming, at each scored position, the likeliest set of next symbols there."""
        return Bound(float(self.best_guess(length)[self.unscored :].mean()))
