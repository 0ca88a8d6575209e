"""Base class of tasks that ask a question about a string of random length."""

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import Value, option
from synthbench.tasks._targets import score_at
from synthbench.tasks.base import Batch, Bound, Task, Tokens

LADDER = (6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024)
"""Lengths of the levels, in tokens. A sequence has only one answer, so long levels are expensive: above 64, lengths
double."""


def string_levels(shortest: int, **shared: Value) -> tuple[dict[str, Value], ...]:
    """Build the ladder (levels of rising difficulty) of a string task: strings get longer from level to level.

    >>> string_levels(400)
    ({'load': 511, 'length': 512, 'shortest': 400}, {'load': 1023, 'length': 1024, 'shortest': 512})

    Args:
        shortest: Number of symbols in the shortest string of the first level.
        shared: Options of the task with the same value on all levels.
    """
    lengths = [length for length in LADDER if length > shortest]
    return tuple(
        {"load": length - 1, "length": length, "shortest": first, **shared}
        for first, length in zip((shortest, *lengths[:-1]), lengths, strict=True)
    )


@dataclass(frozen=True)
class StringTask(Task):
    """Base class of tasks that show a string of random length, then a separator that asks for the answer."""

    load: ClassVar = "symbols"
    shortest: int = option(1, "symbols in the shortest string", low=1, high=65536)

    @property
    @abstractmethod
    def num_symbols(self) -> int:
        """Number of different symbols in strings; symbols have the smallest token ids."""

    @property
    def num_answers(self) -> int:
        """Number of different answers, by default 2: yes and no."""
        return 2

    @abstractmethod
    def draw(self, rng: np.random.Generator, batch_size: int, longest: int) -> Int[np.ndarray, "batch longest"]:
        """Draw strings of ``longest`` symbols; shorter strings are made by cutting off their ends."""

    @abstractmethod
    def answers(self, symbols: Int[np.ndarray, "batch symbols"]) -> Int[np.ndarray, "batch symbols"]:
        """Compute the answer at each position, as if the string ended there."""

    @abstractmethod
    def guesses(self, symbols: Int[np.ndarray, "batch symbols"]) -> dict[str, Int[np.ndarray, "batch symbols"]]:
        """Compute each shortcut's answer at each position, as if the string ended there; return the answers by name."""

    @abstractmethod
    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return, for each given string length, the probability of the likeliest answer."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids (symbols, separator and padding) or of answers, whichever is larger."""
        return max(self.num_symbols + 2, self.num_answers)

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest string and the separator."""
        return int(self.string_lengths(self.shortest + 3)[0]) + 1

    def string_lengths(self, length: int) -> Int[np.ndarray, " lengths"]:
        """List the possible numbers of symbols of strings that fit, with the separator, into ``length`` tokens."""
        return np.arange(self.shortest, length)

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Return a task with longer strings, and the sequence length in tokens that the longest strings need.

        Strings have more than ``factor / 2`` and up to ``factor`` times as many symbols as the longest trained strings.
        """
        longest = length - 1
        return dataclasses.replace(self, shortest=factor // 2 * longest + 1), factor * longest + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw strings of uniformly random length; a separator after each string asks for the answer."""
        ends = rng.choice(self.string_lengths(length), size=(batch_size, 1))
        symbols = self.draw(rng, batch_size, length - 1)
        inputs = np.full((batch_size, length), self.num_symbols + 1)
        np.copyto(inputs[:, :-1], symbols, where=np.arange(length - 1) < ends)
        np.put_along_axis(inputs, ends, self.num_symbols, axis=1)
        answers = np.take_along_axis(self.answers(symbols), ends - 1, axis=1)
        return Batch(inputs, score_at(answers, ends, length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a guess that knows only the string's length and names its likeliest answer.

        The guess may use the length, because the separator's position reveals it.
        """
        return Bound(float(self.best_guess(self.string_lengths(length)).mean()))

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return each shortcut's answers: at each position, the answer to the string that ends before the position."""
        guesses = self.guesses(inputs[:, :-1])
        return {name: np.pad(answers, ((0, 0), (1, 0))) for name, answers in guesses.items()}
