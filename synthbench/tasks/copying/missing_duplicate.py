"""The task missing_duplicate."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.knobs import knob
from synthbench.tasks._targets import score_at
from synthbench.tasks._transduction import Transduction, string_rungs
from synthbench.tasks.base import Batch, Bound, task


@task
@dataclass(frozen=True)
class MissingDuplicate(Transduction):
    """Read a string twice, with one symbol of the two copies masked; at the separator, name the symbol.

    With ``num_symbols=4``, the mask is 4, the separator 5 and the padding 6::

        inputs    3 1 2 0 3 4 2 0 5 6 6
        targets   . . . . . . . . 1 . .

    Tests comparing two halves whose border is not marked: it is known only at the separator. Networks with a tape solve
    it at any length. Where symbols are many and strings are short, the symbols next to the mask give its place away.

    Source: Delétang et al. (2023), context-sensitive tasks. They use 2 symbols; the separator is ours.
    """

    name: ClassVar = "missing_duplicate"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 81
    sizes: ClassVar = {
        "tiny": {"length": 11},
        "small": {"length": length},
        "hard": {"length": 257},
    }
    rungs: ClassVar = string_rungs(12)
    load: ClassVar = "symbols"
    num_symbols: int = knob(4, "number of symbols that strings are made of", low=2, high=65536)

    @property
    def vocab_size(self) -> int:
        """The symbols, the mask, the separator and the padding."""
        return self.num_symbols + 3

    @property
    def separator(self) -> int:
        """The separator comes after the mask, and there are no blanks."""
        return self.num_symbols + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform symbols, write them twice and mask one of all."""
        self.check_length(length)
        string_lengths = self.draw_lengths(rng, batch_size, length)
        strings = rng.integers(self.num_symbols, size=(batch_size, self.longest(length)))
        places = np.arange(length)
        inputs = np.take_along_axis(strings, places % string_lengths, axis=1)
        masks = rng.integers(2 * string_lengths)
        answers = np.take_along_axis(inputs, masks, axis=1)
        np.put_along_axis(inputs, masks, self.num_symbols, axis=1)
        ends = 2 * string_lengths
        inputs[places > ends] = self.separator + 1
        np.put_along_axis(inputs, ends, self.separator, axis=1)
        return Batch(inputs, score_at(answers, ends, length))

    def floor(self, length: int) -> Bound:
        """One in ``num_symbols``, whatever the length."""
        self.check_length(length)
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """At the separator the length of the string is known, and the other copy of the symbol has been read."""
        self.check_length(length)
        return Bound(1.0)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """The symbol before the mask (or after it, if it is first), and what follows the latest other copy of that."""
        masks = (inputs == self.num_symbols).argmax(axis=1, keepdims=True)
        neighbours = np.take_along_axis(inputs, np.where(masks > 0, masks - 1, 1), axis=1)
        is_copy = (inputs[:, :-1] == neighbours) & (inputs[:, 1:] < self.num_symbols)
        latest = (is_copy * np.arange(1, inputs.shape[1])).max(axis=1, keepdims=True)
        followers = np.take_along_axis(inputs, latest, axis=1)
        guesses = {"neighbour": neighbours, "follower": followers}
        return {name: np.broadcast_to(guess, inputs.shape) for name, guess in guesses.items()}
