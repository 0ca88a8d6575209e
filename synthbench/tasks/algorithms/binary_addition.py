"""The task binary_addition."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._transduction import Transduction, string_levels
from synthbench.tasks.base import Batch, Bound, Tokens, task

PLUS, END = 2, 3


@task
@dataclass(frozen=True)
class BinaryAddition(Transduction):
    """Read two binary numbers, lowest digit first, then write their sum and an end token.

    The sum has one digit more than the longer number. The plus sign is 2, the end token 3, the separator 4 and the
    padding 6. At the positions of the answer, the model reads a blank, 5. With ``chain=2``, for 7 + 3 = 10::

        inputs    1 1 1 2 1 1 4 5 5 5 5 5 6 6
        targets   . . . . . . . 0 1 0 1 3 . .

    Tests an algorithm: add the two digits of each place and propagate carries. The distance between the two digits
    varies with the length of the first number. A carry passes through every place where the two digits differ. Above
    the lowest place, the two digits differ with probability ``1-1/chain``, so a carry travels ``chain`` places on
    average while both numbers have digits. Recurrences must store the first number; attention must find the place where
    the carry began.

    Source: Delétang et al. (2023), one of their context-sensitive tasks; the separator is our addition. Unlike in their
    task, each number has at least a third of all digits, and zeros at the end of the sum are kept. The lowest digits of
    the two numbers are equal. So a carry arrives with probability 1/2 at each higher place that both numbers have.
    """

    name: ClassVar = "binary_addition"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 81
    # With fewer digits or shorter chains, using only carries from the place before is right too often. With longer
    # chains, the carry of the lowest place is. Chains grow with the strings, or carries from few places would be right
    # as often on long levels as on short ones.
    levels: ClassVar = tuple({**level, "chain": float(level["length"]) / 8} for level in string_levels(32))
    load: ClassVar = "symbols"
    shortest: int = option(
        3, "number of symbols of the shortest string: the digits and the plus sign", low=3, high=65536
    )
    chain: float = option(
        2.0, "mean number of places that a carry travels where both numbers have digits", low=1, high=1024
    )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the digits, the plus sign, the end token, the separator, the blank and the padding."""
        return 7

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw two numbers; at each place above the lowest, their digits differ with probability ``1 - 1 / chain``."""
        string_lengths = self.draw_lengths(rng, batch_size, length)
        first_lengths = rng.integers(*_splits(string_lengths), endpoint=True)
        second_lengths = string_lengths - 1 - first_lengths
        places = np.arange(self.longest(length))
        first = rng.integers(2, size=(batch_size, len(places)))
        second = first ^ ((rng.random(first.shape) * self.chain > 1) & (places > 0))
        strings = np.where(
            places < first_lengths, first, np.take_along_axis(second, (places - first_lengths - 1).clip(0), axis=1)
        )
        np.put_along_axis(strings, first_lengths, PLUS, axis=1)
        longer = np.maximum(first_lengths, second_lengths)
        sums = _add(first * (places < first_lengths), second * (places < second_lengths))
        answers = np.where(places > longer, END, sums)
        return self.lay_out(strings, string_lengths, answers, longer + 2, length)

    def floor(self, length: int) -> Bound:
        """Return the mean accuracy of the best fixed answers, one per position: a digit or the end token.

        The lengths of the numbers vary as in :meth:`sample`.
        """
        return Bound(_floor(self.shortest, self.longest(length)))

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: ignore all carries, or let every carry end at the next higher place."""
        first, second = self._digits(inputs)
        one_place = first ^ second
        one_place[:, 1:] ^= first[:, :-1] & second[:, :-1]
        return {
            "no carry": self._in_slots(inputs, first ^ second),
            "carry from one place": self._in_slots(inputs, one_place),
        }

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Extend :meth:`shortcuts` by a rule that adds the carry from the lowest place at every higher place."""
        first, second = self._digits(inputs)
        lowest = first ^ second
        lowest[:, 1:] ^= first[:, :1]  # lowest digits are equal
        return {**self.shortcuts(inputs), "carry from the lowest place": self._in_slots(inputs, lowest)}

    def _number_lengths(self, inputs: Tokens) -> tuple[Int[np.ndarray, "batch 1"], Int[np.ndarray, "batch 1"]]:
        """Count the digits of the first and the second number."""
        first_lengths = (inputs == PLUS).argmax(axis=1, keepdims=True)
        return first_lengths, self.string_lengths(inputs) - 1 - first_lengths

    def _digits(self, inputs: Tokens) -> tuple[Tokens, Tokens]:
        """Extract the digits of both numbers, lowest first, padded with zeros."""
        first_lengths, second_lengths = self._number_lengths(inputs)
        places = np.arange(inputs.shape[1])
        shifted = np.take_along_axis(inputs, (places + first_lengths + 1).clip(max=len(places) - 1), axis=1)
        return inputs * (places < first_lengths), shifted * (places < second_lengths)

    def _in_slots(self, inputs: Tokens, digits: Tokens) -> Tokens:
        """Return predictions with the given digits, then the end token, at the positions that ask for the sum."""
        slots = (np.arange(inputs.shape[1]) - self.string_lengths(inputs) - 1).clip(0)
        is_end = slots > np.maximum(*self._number_lengths(inputs))
        return np.where(is_end, END, np.take_along_axis(digits, slots, axis=1))


def _splits(string_lengths: Int[np.ndarray, "*batch"]) -> tuple[Int[np.ndarray, "*batch"], Int[np.ndarray, "*batch"]]:
    """Return the smallest and the largest number of digits of the first number, given the length of each string.

    A string is both numbers and the plus sign. Each number has at least a third of all digits, rounded up.
    """
    num_digits = string_lengths - 1
    fewest = -(-num_digits // 3)
    return fewest, num_digits - fewest


def _add(
    first: Int[np.ndarray, "batch places"], second: Int[np.ndarray, "batch places"]
) -> Int[np.ndarray, "batch places"]:
    """Add two binary numbers, lowest digit first, without the carry out of the highest place."""
    # The carry out of a place is the digit at the highest place, up to it, where both are equal: others pass it on.
    equal = np.where(first == second, np.arange(first.shape[1]), -1)
    latest = np.maximum.accumulate(equal, axis=1)
    carries = np.take_along_axis(first, latest.clip(0), axis=1) * (latest >= 0)
    sums: Int[np.ndarray, "batch places"] = first ^ second
    sums[:, 1:] ^= carries[:, :-1]
    return sums


@cache
def _floor(shortest: int, longest: int) -> float:
    occurrences = np.zeros((2 * longest + 1, 3))
    for string_length in range(shortest, longest + 1):
        fewest, most = _splits(np.array([string_length]))
        first = np.arange(fewest[0], most[0] + 1)[:, None]
        shorter, longer = np.minimum(first, string_length - 1 - first), np.maximum(first, string_length - 1 - first)
        slots = np.arange(string_length)
        # The lowest digits are equal, so there is a carry into half of all later places of both numbers, and the sum is
        # fair there. A place of one number only has a fair digit, and passes on half of the carries.
        ones = np.where(slots == 0, 0, np.where(slots < longer, 0.5, 0.5 ** (longer - shorter + 1)))
        is_digit, is_end = slots <= longer, slots == longer + 1
        classes = np.stack([(1 - ones) * is_digit, ones * is_digit, is_end * 1.0], axis=2)
        occurrences[string_length + 1 : 2 * string_length + 1] += classes.mean(axis=0)
    return float(occurrences.max(axis=1).sum() / occurrences.sum())
