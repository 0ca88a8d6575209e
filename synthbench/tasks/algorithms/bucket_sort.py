"""The task bucket_sort."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from synthbench.options import option
from synthbench.tasks._bounds import at_least
from synthbench.tasks._counts import count_symbols
from synthbench.tasks._transduction import Transduction, string_levels
from synthbench.tasks.base import Batch, Bound, Tokens, task


@task
@dataclass(frozen=True)
class BucketSort(Transduction):
    """Read a string over a small alphabet, then a separator; write the string's symbols in ascending order.

    With ``num_symbols=5``, the separator is 5, the blank 6 and the padding 7::

        inputs    3 1 4 1 5 6 6 6 6 7
        targets   . . . . . 1 1 3 4 .

    Tests counting: only the number of copies of each symbol matters. Attention and gated recurrences can count up to
    the trained lengths. An LSTM can also count in longer strings, because its cell state can grow without bound.

    Source: Delétang et al. (2023), one of their context-sensitive tasks; the separator is our addition.
    """

    name: ClassVar = "bucket_sort"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 81
    # With 5 symbols, the length alone predicts too many slots of strings of more than 40 symbols.
    levels: ClassVar = string_levels(12, num_symbols=16)
    # In longer strings, half of the string shows nearly how often each symbol occurs in all of it.
    extended_levels: ClassVar = levels[:-2]
    load: ClassVar = "symbols"
    not_tested: ClassVar = (
        "Sorting, at high raw accuracy: the longer the string, the better the length alone predicts each slot."
    )
    num_symbols: int = option(5, "number of symbols that strings are made of", low=2, high=4096)

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, the separator, the blank and the padding."""
        return self.num_symbols + 3

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw strings whose lengths and symbols are uniformly random; the answer is the string in sorted order."""
        string_lengths = self.draw_lengths(rng, batch_size, length)
        strings = rng.integers(self.num_symbols, size=(batch_size, self.longest(length)))
        # Symbols beyond the string's end are replaced by a larger id, which sorts last.
        answers = np.sort(np.where(np.arange(strings.shape[1]) < string_lengths, strings, self.num_symbols), axis=1)
        return self.lay_out(strings, string_lengths, answers, string_lengths, length)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of naming the likeliest symbol at each position, over all string lengths."""
        return Bound(_floor(self.shortest, self.longest(length), self.num_symbols))

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of one rule: name the likeliest symbol at each place of the answer.

        The rule uses only the string's length, not its symbols.
        """
        string_lengths = self.string_lengths(inputs)
        slots = np.arange(inputs.shape[1]) - string_lengths - 1
        modes = np.zeros((inputs.shape[1], inputs.shape[1]), dtype=np.int64)
        for string_length in set(string_lengths.ravel().tolist()):
            modes[string_length, :string_length] = _order_statistics(string_length, self.num_symbols).argmax(axis=1)
        return {"string length": modes[string_lengths, slots.clip(0)]}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of two rules that count symbols in only part of the string.

        One rule counts in the last half, the other in the last third. Both assume that all symbols are equally frequent
        elsewhere.
        """
        string_lengths = self.string_lengths(inputs)
        positions = np.arange(inputs.shape[1])
        slots = positions - string_lengths - 1
        found = self.shortcuts(inputs)
        for name, share in {"later half": 2, "later third": 3}.items():
            sizes = -(-string_lengths // share)
            is_counted = (positions < string_lengths) & (positions >= string_lengths - sizes)
            counts = count_symbols(np.where(is_counted, inputs, self.num_symbols), self.num_symbols + 1)
            # Number of tokens that are at most each symbol, times num_symbols to keep whole numbers.
            at_most = self.num_symbols * counts[:, : self.num_symbols].cumsum(axis=1)
            at_most += (string_lengths - sizes) * np.arange(1, self.num_symbols + 1)
            middle = (2 * slots + 1) * self.num_symbols
            guesses = (2 * at_most[:, None, :-1] <= middle[:, :, None]).sum(axis=2)
            found[name] = guesses
        return found


def _order_statistics(num_draws: int, num_symbols: int) -> Float[np.ndarray, "slots symbols"]:
    """Compute the probability of each symbol at each place of ``num_draws`` uniform symbols in sorted order."""
    # Slot s holds at most symbol v if more than s of the draws are at most v.
    return np.diff(at_least(num_draws, num_symbols)[:, 1:], axis=0, prepend=0).T


@cache
def _floor(shortest: int, longest: int, num_symbols: int) -> float:
    occurrences = np.zeros((2 * longest, num_symbols))
    for string_length in range(shortest, longest + 1):
        # Before the first slot are the string and the separator; position 0 is never scored.
        occurrences[string_length : 2 * string_length] += _order_statistics(string_length, num_symbols)
    return float(occurrences.max(axis=1).sum() / occurrences.sum())
