"""Base class of tasks that ask for the value of an expression of random length."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import option
from synthbench.tasks._targets import score_at
from synthbench.tasks.base import Batch, Bound, Task, Tokens


@dataclass(frozen=True)
class Evaluation(Task):
    """Base class of tasks that show an expression of random length, and ask for its value at a separator after it."""

    shortest: int = option(1, "symbols in the shortest expression", low=1, high=65536)

    @property
    @abstractmethod
    def num_symbols(self) -> int:
        """Number of different symbols in expressions; symbols have the lowest token ids, and each value is a symbol."""

    @abstractmethod
    def write(
        self, rng: np.random.Generator, inputs: Tokens, lengths: Int[np.ndarray, " batch"]
    ) -> Int[np.ndarray, " batch"]:
        """Write a random expression of the given length at the start of each sequence; return the values."""

    @abstractmethod
    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return, for each given expression length, the probability of the likeliest value."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, the separator and the padding."""
        return self.num_symbols + 2

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest expression and the separator."""
        return self.shortest + 1

    def expression_lengths(self, length: int) -> Int[np.ndarray, " lengths"]:
        """List the possible lengths of the expression in a sequence of ``length`` tokens."""
        return np.arange(self.shortest, length)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a uniform length for each expression, then the expression; the target at the separator is its value."""
        lengths = rng.choice(self.expression_lengths(length), size=batch_size)
        inputs = np.full((batch_size, length), self.num_symbols + 1)
        values = self.write(rng, inputs, lengths)
        np.put_along_axis(inputs, lengths[:, None], self.num_symbols, axis=1)
        return Batch(inputs, score_at(values[:, None], lengths[:, None], length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a guess that knows only the expression's length and names its likeliest value.

        The guess may use the length, because the separator's position reveals it.
        """
        return Bound(float(self.best_guess(self.expression_lengths(length)).mean()))
