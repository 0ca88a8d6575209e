"""The task missing_duplicate."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import option
from synthbench.tasks._counts import count_symbols
from synthbench.tasks._targets import score_at
from synthbench.tasks._transduction import Transduction, string_levels
from synthbench.tasks.base import Batch, Bound, Tokens, task


@task
@dataclass(frozen=True)
class MissingDuplicate(Transduction):
    """Read two copies of a string, in one of which a symbol is masked; at the separator, name the masked symbol.

    With ``num_symbols=4``, the mask is 4, the separator 5 and the padding 6::

        inputs    3 1 2 0 3 4 2 0 5 6 6
        targets   . . . . . . . . 1 . .

    Tests comparing the two copies, although only the separator at the end reveals where the second copy began. Networks
    with a tape as memory solve the task at any length. With a large alphabet and short strings, the symbols next to the
    mask are enough to find the same place in the other copy. By default, counting also reveals the answer, because only
    the masked symbol is visible an odd number of times. The option ``num_erased`` prevents this: it replaces that many
    other symbols by padding, each in only one copy.

    Source: Delétang et al. (2023), one of their context-sensitive tasks. They use 2 symbols; the separator is our
    addition.
    """

    name: ClassVar = "missing_duplicate"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 81
    # Without erased symbols, counting reveals the answer. With more than three symbols, the two symbols on either side
    # of the mask identify its place in the other copy.
    levels: ClassVar = string_levels(12, num_symbols=3, num_erased=2)
    load: ClassVar = "symbols"
    num_symbols: int = option(4, "number of symbols that strings are made of", low=2, high=65536)
    num_erased: int = option(
        0, "other symbols that are erased, as far as the string has any", low=0, high=65536, is_addition=True
    )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, the mask, the separator and the padding."""
        return self.num_symbols + 3

    @property
    def separator(self) -> int:
        """Id of the separator, the next id after the mask; the task has no blank token."""
        return self.num_symbols + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform symbols, write them twice, mask one, and replace ``num_erased`` others by padding."""
        string_lengths = self.draw_lengths(rng, batch_size, length)
        strings = rng.integers(self.num_symbols, size=(batch_size, self.longest(length)))
        places = np.arange(length)
        inputs = np.take_along_axis(strings, places % string_lengths, axis=1)
        masks = rng.integers(2 * string_lengths)
        answers = np.take_along_axis(inputs, masks, axis=1)
        np.put_along_axis(inputs, masks, self.num_symbols, axis=1)
        if self.num_erased:
            erased = self._draw_erased(rng, string_lengths, masks)
            np.put_along_axis(inputs, erased, self.separator + 1, axis=1)
        ends = 2 * string_lengths
        inputs[places > ends] = self.separator + 1
        np.put_along_axis(inputs, ends, self.separator, axis=1)
        return Batch(inputs, score_at(answers, ends, length))

    def _draw_erased(
        self, rng: np.random.Generator, string_lengths: Int[np.ndarray, "batch 1"], masks: Int[np.ndarray, "batch 1"]
    ) -> Int[np.ndarray, "batch erased"]:
        """Draw the positions of ``num_erased`` symbols to erase, each in a random copy of the string.

        The masked symbol is not erased in the other copy. If the string has too few symbols, the remaining entries
        point to the separator, which is written later.
        """
        order = rng.random((len(masks), int(string_lengths.max())))
        order[np.arange(order.shape[1]) >= string_lengths] = np.inf
        np.put_along_axis(order, masks % string_lengths, np.inf, axis=1)
        places = np.argsort(order, axis=1)[:, : self.num_erased]
        in_copies = places + string_lengths * rng.integers(2, size=places.shape)
        return np.where(np.arange(places.shape[1]) < string_lengths - 1, in_copies, 2 * string_lengths)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """Return 1: at the separator, the string's length is known and the symbol's other copy has been read."""
        return Bound(1.0)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of two shortcut rules, which use only the symbol before the mask.

        One rule names this symbol. The other rule finds the latest place where this symbol is followed by another
        symbol, and names that other symbol. If the mask is the first token, both rules use the symbol after the mask.
        """
        masks = (inputs == self.num_symbols).argmax(axis=1, keepdims=True)
        neighbours = np.take_along_axis(inputs, np.where(masks > 0, masks - 1, 1), axis=1)
        is_copy = (inputs[:, :-1] == neighbours) & (inputs[:, 1:] < self.num_symbols)
        latest = (is_copy * np.arange(1, inputs.shape[1])).max(axis=1, keepdims=True)
        followers = np.take_along_axis(inputs, latest, axis=1)
        guesses = {"neighbour": neighbours, "follower": followers}
        return {name: np.broadcast_to(guess, inputs.shape) for name, guess in guesses.items()}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of four more shortcut rules.

        One rule names a symbol that occurs an odd number of times, and one names the most frequent symbol. The other
        two rules find the places whose neighbouring symbols agree best with the mask's. They name the most frequent
        symbol at these places.
        """
        counts = count_symbols(inputs, self.vocab_size)[:, : self.num_symbols]
        votes = {
            "odd count": counts % 2,
            "most frequent": counts,
            "two before": self._votes(inputs, (-2, -1)),
            "two on either side": self._votes(inputs, (-2, -1, 1, 2)),
        }
        guesses = {name: np.broadcast_to(of.argmax(axis=1)[:, None], inputs.shape) for name, of in votes.items()}
        return {**self.shortcuts(inputs), **guesses}

    def _votes(self, inputs: Tokens, steps: tuple[int, ...]) -> Float[np.ndarray, "batch symbols"]:
        """Sum votes for each symbol; each position of a sequence votes for the symbol that stands there.

        ``steps`` lists offsets to neighbours. The weight of a vote grows with the number of offsets at which the
        position and the mask have equal neighbours.
        """
        length, margin = inputs.shape[1], max(map(abs, steps))
        padded = np.pad(inputs, ((0, 0), (margin, margin)), constant_values=-1)
        masks = margin + (inputs == self.num_symbols).argmax(axis=1, keepdims=True)
        agreement = np.zeros(inputs.shape)
        for step in steps:
            around_mask = np.take_along_axis(padded, masks + step, axis=1)
            agreement += padded[:, margin + step : margin + step + length] == around_mask
        votes = np.zeros((len(inputs), self.num_symbols))
        rows, places = np.nonzero(inputs < self.num_symbols)
        np.add.at(votes, (rows, inputs[rows, places]), (length + 1.0) ** agreement[rows, places])
        return votes
