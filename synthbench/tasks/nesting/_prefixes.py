"""Shared code of tasks that ask which symbols may follow each beginning of a word."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task


@dataclass(frozen=True)
class NextSymbols(Task):
    """Base class of tasks that show a word's beginning and ask, after each symbol, which symbols may follow.

    Each set of symbols is one class, so a model must get the whole set right. If a model was trained on levels, tests
    on longer sequences score only positions beyond the trained length.
    """

    unscored: int = option(0, "number of positions at the beginning that are not scored", low=0, high=65536)

    @abstractmethod
    def draw(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw beginnings of words and, at each position, the class of the set that may follow."""

    @abstractmethod
    def best_guess(self, length: int) -> Float[np.ndarray, " length"]:
        """Return the probability of the likeliest set at each position."""

    @property
    def min_length(self) -> int:
        """Number of tokens up to the first scored position."""
        return self.unscored + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw beginnings of words; the first ``unscored`` positions have no target."""
        inputs, targets = self.draw(rng, batch_size, length)
        targets[:, : self.unscored] = IGNORE
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of guessing the likeliest set at each position."""
        return Bound(float(self.best_guess(length)[self.unscored :].mean()))
