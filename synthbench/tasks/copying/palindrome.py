"""The task palindrome."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._transduction import Transduction, string_levels
from synthbench.tasks.base import IGNORE, Batch, Bound, Tokens, task

MOST_CODES = 2**62
"""Largest number of token combinations that are numbered by 64-bit integers."""


@task
@dataclass(frozen=True)
class Palindrome(Transduction):
    """Read a string and a separator, then predict the string backwards; each right answer is also the next input.

    With ``num_symbols=8``, the separator is 8 and the padding 9::

        inputs    3 1 4 1 8 1 4 1 9 9
        targets   . . . . 1 4 1 3 . .

    Tests reading backwards from a moving place. In the string, the answer stands right before the symbol just read. But
    this symbol occurs at several places, and only the number of answers so far tells which place is meant. The task
    ``reverse_string`` asks for the same answers, but does not show them as inputs.

    With ``block=8``, the string repeats a block of eight symbols, except that one of the eight is drawn anew each time.
    Only the newly drawn symbols are scored, so the tokens before all scored positions are mostly the same.

    Source: after the Kimi Team (2025), which tests Kimi Delta Attention this way. Here, string lengths vary.
    """

    name: ClassVar = "palindrome"
    version: ClassVar = 2
    source: ClassVar = "kimi2025linear"
    length: ClassVar = 64
    # Without blocks, the last five tokens identify the place in most strings of a hundred symbols. With blocks and
    # shorter strings, the differing symbols of the last two blocks do.
    levels: ClassVar = string_levels(96, num_symbols=2, block=8)
    # In a string of four or six blocks, two blocks identify the place too often.
    extended_levels: ClassVar = levels[2:]
    load: ClassVar = "symbols"
    num_symbols: int = option(4, "number of symbols that strings are made of", low=2, high=65536)
    block: int = option(
        1,
        "symbols of a block: all blocks of a string are equal but for one symbol each, which alone is asked",
        low=1,
        high=1024,
        is_addition=True,
    )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, the separator and the padding."""
        return self.num_symbols + 2

    @property
    def separator(self) -> int:
        """Id of the separator; the task has no blank token."""
        return self.num_symbols

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw string lengths and symbols uniformly, then append the separator and the string backwards."""
        string_lengths = self.draw_lengths(rng, batch_size, length)
        strings = rng.integers(self.num_symbols, size=(batch_size, self.longest(length)))
        positions = np.arange(length)
        is_own = np.ones(strings.shape, dtype=bool)
        if self.block > 1:
            # The string begins at a uniform place in a block.
            place = (np.arange(strings.shape[1]) + rng.integers(self.block, size=(batch_size, 1))) % self.block
            shared = rng.integers(self.num_symbols, size=(batch_size, self.block))
            is_own = place == 0
            strings = np.where(is_own, strings, np.take_along_axis(shared, place, axis=1))
        mirror = 2 * string_lengths - positions
        inputs = _symbols(strings, np.where(positions < string_lengths, positions, mirror))
        inputs[positions == string_lengths] = self.separator
        inputs[mirror <= 0] = self.separator + 1
        is_asked = (positions >= string_lengths) & (mirror > 0)
        is_asked &= np.take_along_axis(is_own, (mirror - 1).clip(0, strings.shape[1] - 1), axis=1)
        return Batch(inputs, np.where(is_asked, _symbols(strings, mirror - 1), IGNORE))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess: every scored symbol is uniform."""
        return Bound(1 / self.num_symbols)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of three shortcut rules: write the string forwards, or look up the last one or two tokens.

        A look-up finds the latest place in the string where these tokens stand in reverse order, and names the token
        before this place.
        """
        string_lengths = self.string_lengths(inputs)
        positions = np.arange(inputs.shape[1])
        found = {"forwards": _symbols(inputs, positions - string_lengths)}
        for num_tokens in (1, 2):
            found[f"last {num_tokens}"] = self._before_copies(inputs, string_lengths, num_tokens)
        return found

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts`, and of rules that look up the last n tokens for n above 2.

        The values of n are 4, 5, k, k + 1, 2k and 2k + 1, where k is the option ``block``. A value is left out if it is
        at most 2, or if there are too many sequences of n tokens to give each its own 64-bit integer.
        """
        string_lengths = self.string_lengths(inputs)
        found = self.shortcuts(inputs)
        for num_tokens in sorted({4, 5, self.block, self.block + 1, 2 * self.block, 2 * self.block + 1}):
            if num_tokens > 2 and self.vocab_size**num_tokens < MOST_CODES:
                found[f"last {num_tokens}"] = self._before_copies(inputs, string_lengths, num_tokens)
        return found

    def _before_copies(self, inputs: Tokens, string_lengths: Int[np.ndarray, "batch 1"], num_tokens: int) -> Tokens:
        """Find the latest place where the last ``num_tokens`` tokens read stand in reverse order.

        Return the token before this place.

        The search covers the string and the separator.
        """
        length, positions = inputs.shape[1], np.arange(inputs.shape[1])
        is_string = positions <= string_lengths
        # Codes of num_tokens tokens: in the string a token and those after it, behind it a token and those before it.
        after, before = inputs.copy(), inputs.copy()
        for step in range(1, num_tokens):
            after = after * self.vocab_size + np.roll(inputs, -step, axis=1)
            before = before * self.vocab_size + np.roll(inputs, step, axis=1)
        known = np.where(is_string, after, before)
        order = np.argsort(known, axis=1, kind="stable")
        in_order = np.take_along_axis(known, order, axis=1)
        group = np.cumsum(np.diff(in_order, axis=1, prepend=in_order[:, :1]) != 0, axis=1) * (length + 1)
        places = np.where(np.take_along_axis(is_string, order, axis=1), order + 1, 0)
        copies = np.empty_like(order)
        np.put_along_axis(copies, order, np.maximum.accumulate(group + places, axis=1) - group - 1, axis=1)
        return _symbols(inputs, np.where(positions == string_lengths, positions, copies) - 1)


def _symbols(strings: Int[np.ndarray, "batch longest"], places: Tokens) -> Tokens:
    """Return the symbols at the given places of each string; a place beyond an end gives the symbol at that end."""
    return np.take_along_axis(strings, places.clip(0, strings.shape[1] - 1), axis=1)
