"""The task selective_copying."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import IGNORE, LENGTHS, Batch, Bound, Task, Tokens, task


@task
@dataclass(frozen=True)
class SelectiveCopying(Task):
    """Read a few symbols scattered among blanks, then write them in order.

    With ``num_symbols=8`` and ``num_tokens=3``, the blank is 8 and the separator 9::

        inputs    8 3 8 8 1 4 8 9 8 8 8
        targets   . . . . . . . . 3 1 4

    Tests choosing by content which tokens to store: symbols, but not blanks. Attention and selective recurrences solve
    the task. Mixers that treat all tokens alike, such as convolutions and linear time-invariant recurrences, cannot. A
    fixed-size state cannot hold arbitrarily many symbols.

    Source: Poli et al. (2024), the selective copying task of their MAD suite. In their code, each blank is put before a
    random symbol, so the last symbol always stands right before the separator. Their sequences have 256 tokens. Here,
    every arrangement of symbols and blanks is equally likely. If a model is trained on several levels of difficulty,
    tests beyond these levels have more symbols and more blanks.
    """

    name: ClassVar = "selective_copying"
    source: ClassVar = "poli2024mad"
    length: ClassVar = 128
    # Two blanks per symbol, less one: the fraction of blanks is about the same on all levels.
    levels: ClassVar = tuple(
        {"load": length // 4, "length": length, "num_tokens": length // 4} for length in LENGTHS if length >= 12
    )
    load: ClassVar = "symbols"
    num_symbols: int = option(14, "number of symbols, the blank and the separator not counted", low=2, high=65536)
    num_tokens: int = option(16, "number of symbols to copy", low=1, high=65536)

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, the blank and the separator."""
        return self.num_symbols + 2

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence: the symbols, the separator, and a blank for each answer."""
        return 2 * self.num_tokens + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform symbols and put them at a random subset of the places before the separator."""
        num_places = length - self.num_tokens - 1
        # The positions of the smallest of uniform numbers are a uniform subset.
        keys = rng.random((batch_size, num_places))
        places = np.sort(np.argpartition(keys, self.num_tokens - 1, axis=1)[:, : self.num_tokens], axis=1)
        symbols = rng.integers(self.num_symbols, size=places.shape)
        inputs = np.full((batch_size, length), self.num_symbols)
        np.put_along_axis(inputs, places, symbols, axis=1)
        inputs[:, num_places] = self.num_symbols + 1
        targets = np.full_like(inputs, IGNORE)
        targets[:, num_places + 1 :] = symbols
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.num_symbols)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of a rule whose n-th answer is the token at the n-th symbol's average place."""
        num_places = inputs.shape[1] - self.num_tokens - 1
        places = np.arange(1, self.num_tokens + 1) * (num_places + 1) // (self.num_tokens + 1) - 1
        predictions = np.zeros_like(inputs)
        predictions[:, num_places + 1 :] = inputs[:, places]
        return {"average places": predictions}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of a rule that knows the symbols' average places.

        Its n-th answer is the symbol nearest to the average place of the n-th symbol, or the earlier of two equally
        near symbols.
        """
        num_places = inputs.shape[1] - self.num_tokens - 1
        places = np.arange(1, self.num_tokens + 1) * (num_places + 1) // (self.num_tokens + 1) - 1
        positions = np.arange(num_places)
        is_symbol = inputs[:, :num_places] < self.num_symbols
        before = np.maximum.accumulate(np.where(is_symbol, positions, -1), axis=1)[:, places]
        after = np.where(is_symbol, positions, 2 * num_places)
        after = np.minimum.accumulate(after[:, ::-1], axis=1)[:, ::-1][:, places]
        is_before = (before >= 0) & (places - before <= after - places)
        predictions = np.zeros_like(inputs)
        nearest = np.where(is_before, before, after).clip(0, num_places - 1)
        predictions[:, num_places + 1 :] = np.take_along_axis(inputs, nearest, axis=1)
        return {**self.shortcuts(inputs), "symbols nearest to average places": predictions}
