"""Shared code of tasks that write the symbols of a string in some order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._transduction import Transduction
from synthbench.tasks.base import Batch, Bound, Tokens

Slots = Int[np.ndarray, "... slots"]
Lengths = Int[np.ndarray, "batch 1"]
Order = Callable[[Slots, Lengths], Slots]
"""Map from slots, counted from 0, and string lengths to the symbol that each slot asks for."""


def _backwards(slots: Slots, string_lengths: Lengths) -> Slots:
    asked: Slots = string_lengths - 1 - slots
    return asked


def _twice(slots: Slots, string_lengths: Lengths) -> Slots:
    asked: Slots = slots % string_lengths
    return asked


def _odds_first(slots: Slots, string_lengths: Lengths) -> Slots:
    num_odd = (string_lengths + 1) // 2
    return np.where(slots < num_odd, 2 * slots, 2 * (slots - num_odd) + 1)


ORDERS: Mapping[str, Order] = MappingProxyType(
    {
        "forwards": lambda slots, _string_lengths: slots,
        "backwards": _backwards,
        "twice": _twice,
        "odds first": _odds_first,
        "latest symbol": lambda _slots, string_lengths: string_lengths - 1,
    }
)
SHORTCUTS = ("forwards", "backwards", "latest symbol")
"""Orders that need only recall at a fixed place or in one direction."""


@dataclass(frozen=True)
class Rearrangement(Transduction):
    """Base class of tasks that ask for the symbols of a random string in some order."""

    order: ClassVar[str]
    """What makes the task: a key of ``ORDERS``."""
    num_symbols: int = option(16, "number of symbols that strings are made of", low=2, high=65536)

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, the separator, the blank and the padding."""
        return self.num_symbols + 3

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw strings with uniformly random lengths and symbols; the answer lists the symbols in the task's order."""
        longest = self.longest(length)
        string_lengths = self.draw_lengths(rng, batch_size, length)
        strings = rng.integers(self.num_symbols, size=(batch_size, longest))
        slots = np.arange((self.tokens_per_symbol - 1) * longest)
        answers = _read(strings, self.order, slots, string_lengths)
        return self.lay_out(strings, string_lengths, answers, (self.tokens_per_symbol - 1) * string_lengths, length)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess: the answer at every position is uniform."""
        return Bound(1 / self.num_symbols)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of rules that write the string in a wrong order; each order in ``SHORTCUTS`` is one rule.

        Where an order points beyond an end of the string, the rule names the symbol at that end.
        """
        string_lengths = self.string_lengths(inputs)
        slots = np.arange(inputs.shape[1]) - string_lengths - 1
        return {name: _read(inputs, name, slots, string_lengths) for name in SHORTCUTS if name != self.order}


def _read(
    strings: Int[np.ndarray, "batch longest"], order: str, slots: Slots, string_lengths: Lengths
) -> Int[np.ndarray, "batch slots"]:
    asked = np.clip(ORDERS[order](slots, string_lengths), 0, string_lengths - 1)
    return np.take_along_axis(strings, np.broadcast_to(asked, (len(strings), slots.shape[-1])), axis=1)
