"""Shared code of tasks that read a string of varying length, then write an answer."""

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import Value, option
from synthbench.tasks.base import IGNORE, LENGTHS, Batch, Task, Tokens


def string_levels(first_length: int, tokens_per_symbol: int = 2, **shared: Value) -> tuple[dict[str, Value], ...]:
    """Build a ladder (list of levels) in which each level has longer strings than all easier levels.

    >>> string_levels(768, num_symbols=8)[0]
    {'load': 383, 'length': 768, 'shortest': 256, 'num_symbols': 8}

    Args:
        first_length: Sequence length of the first level, in tokens: an entry of :data:`LENGTHS`. On each level, all
            strings are too long for a sequence of the next smaller length.
        tokens_per_symbol: Tokens that a sequence needs for each symbol of its string.
        shared: Options of the task with the same value on all levels.
    """
    return tuple(
        {
            "load": (length - 1) // tokens_per_symbol,
            "length": length,
            "shortest": (below - 1) // tokens_per_symbol + 1,
            **shared,
        }
        for below, length in pairwise(LENGTHS)
        if length >= first_length
    )


@dataclass(frozen=True)
class Transduction(Task):
    """Base class of tasks with a string, a separator, blanks at which the model writes an answer, and padding.

    String lengths are uniformly random. At each blank, the model names one token of the answer. The last three token
    ids are the separator, the blank and the padding, in this order.
    """

    tokens_per_symbol: ClassVar[int] = 2
    """How many tokens a sequence needs for each symbol of its string; the separator is one more."""
    shortest: int = option(1, "number of symbols of the shortest string", low=1, high=65536)

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence: the shortest string, the separator and the string's answer."""
        return self.tokens_per_symbol * self.shortest + 1

    @property
    def separator(self) -> int:
        """Token id of the separator, which stands right after the string."""
        return self.vocab_size - 3

    def longest(self, length: int) -> int:
        """Return the number of symbols of the longest string that fits, with its answer, into ``length`` tokens."""
        return (length - 1) // self.tokens_per_symbol

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Return a task with longer strings, and the sequence length in tokens that the longest of these strings needs.

        Strings are more than ``factor / 2`` times and up to ``factor`` times as long as the longest strings in
        training.
        """
        longest = factor * self.longest(length)
        return dataclasses.replace(self, shortest=longest // 2 + 1), self.tokens_per_symbol * longest + 1

    def draw_lengths(self, rng: np.random.Generator, batch_size: int, length: int) -> Int[np.ndarray, "batch 1"]:
        """Draw the number of symbols of each string, uniform among the lengths that fit."""
        return rng.integers(self.shortest, self.longest(length), size=(batch_size, 1), endpoint=True)

    def lay_out(
        self,
        strings: Int[np.ndarray, "batch longest"],
        string_lengths: Int[np.ndarray, "batch 1"],
        answers: Int[np.ndarray, "batch most"],
        answer_lengths: Int[np.ndarray, "batch 1"],
        length: int,
    ) -> Batch:
        """Build inputs and targets from the first symbols of each string and the first symbols of each answer.

        ``string_lengths`` and ``answer_lengths`` are the numbers of symbols to use. Inputs are the string, the
        separator, a blank for each token of the answer, and padding. Targets are the answer at the blanks, and
        ``IGNORE`` (not scored) elsewhere.
        """
        slots = np.arange(length) - string_lengths - 1
        is_slot = (slots >= 0) & (slots < answer_lengths)
        inputs = np.full(slots.shape, self.separator + 2)
        inputs[slots < -1] = strings[np.arange(strings.shape[1]) < string_lengths]
        inputs[slots == -1] = self.separator
        inputs[is_slot] = self.separator + 1
        targets = np.full(slots.shape, IGNORE)
        targets[is_slot] = answers[np.arange(answers.shape[1]) < answer_lengths]
        return Batch(inputs, targets)

    def string_lengths(self, inputs: Tokens) -> Int[np.ndarray, "batch 1"]:
        """Count, in each sequence, the symbols before the separator."""
        lengths: Int[np.ndarray, "batch 1"] = (inputs == self.separator).argmax(axis=1, keepdims=True)
        return lengths
