"""The task planted_majority."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._counts import count_symbols
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import LENGTHS, Batch, Bound, Task, Tokens, task


@task
@dataclass(frozen=True)
class PlantedMajority(Task):
    """At the end, name the most frequent symbol, whose count exceeds the second-highest count by ``margin``.

    With ``num_symbols=4`` and ``margin=2``, the symbol 1 occurs four times and the symbol 3 twice::

        inputs    3 1 1 0 1 3 2 1
        targets   . . . . . . . 1

    Tests whether a model can compare close counts: the margin is fixed, so in a longer sequence it is a smaller
    fraction of the length. Attention that averages sees only relative frequencies, and needs high numerical precision
    to compare them. Recurrences need a counter for every symbol; if their state decays, they count only the latest
    symbols.

    Source: Yehudai et al. (2024), their most frequent element task. In the paper, the margins are left to chance.
    """

    name: ClassVar = "planted_majority"
    source: ClassVar = "yehudai2024count"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "most frequent of all tokens": "The most frequent of all tokens is the answer.",
            "after any copy, the most frequent of all": "In long sequences every symbol has followed the present one.",
            "vote by *": "With equal weights the winner of the vote is the most frequent token.",
        }
    )
    length: ClassVar = 64
    # With a margin of 4, the last quarter reveals the answer in most short sequences.
    levels: ClassVar = tuple({"load": length, "length": length, "margin": 2} for length in LENGTHS if length >= 12)
    # The last 3/4 of 16 tokens reveal the answer too often.
    extended_levels: ClassVar = levels[2:]
    num_symbols: int = option(8, "number of symbols", low=3, high=4096)
    margin: int = option(4, "how much more often the most frequent symbol occurs than the second", low=1, high=4096)

    @property
    def vocab_size(self) -> int:
        """Number of symbols."""
        return self.num_symbols

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence: ``margin + 1`` copies of one symbol and one copy of another."""
        return self.margin + 2

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw sequences in which the highest symbol count exceeds the second-highest by ``margin``.

        The counts of all other symbols differ from each other by at most one.
        """
        fewest = -(-(length + (self.num_symbols - 1) * self.margin) // self.num_symbols)
        # At most length // num_symbols more than the least count, so that several symbols remain plausible.
        most = min((length + self.margin) // 2, fewest + length // self.num_symbols)
        first = rng.integers(fewest, most, size=(batch_size, 1), endpoint=True)
        second = first - self.margin
        num_others = self.num_symbols - 2
        others = (length - first - second + np.arange(num_others)) // num_others
        counts = np.concatenate([first, second, others], axis=1)
        symbols = rng.permuted(np.tile(np.arange(self.num_symbols), (batch_size, 1)), axis=1)
        inputs = rng.permuted(np.repeat(symbols, counts.ravel()).reshape(batch_size, length), axis=1)
        return Batch(inputs, score_last(symbols[:, 0], length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.num_symbols)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: name the latest symbol, or the most frequent symbol of the last quarter."""
        length = inputs.shape[1]
        latest = count_symbols(inputs[:, -(-3 * length // 4) :], self.num_symbols).argmax(axis=1)
        return {"latest symbol": inputs, "last quarter": score_last(latest, length)}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Extend :meth:`shortcuts` by a rule that names the most frequent symbol of the last half."""
        length = inputs.shape[1]
        latest = count_symbols(inputs[:, length // 2 :], self.num_symbols).argmax(axis=1)
        return {**self.shortcuts(inputs), "last half": score_last(latest, length)}
