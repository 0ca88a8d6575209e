"""The task stack_manipulation."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._transduction import Transduction
from synthbench.tasks.base import LENGTHS, Batch, Bound, Tokens, task


@task
@dataclass(frozen=True)
class StackManipulation(Transduction):
    """Read a stack, its top last, then PUSH and POP actions; write the new stack, its top first, and an end token.

    PUSH of 0 is token 2, PUSH of 1 is 3, POP is 4, the end is 5, the separator 6, the blank 7 and the padding 8. In the
    example, the stack 0 1 is popped once, then 1 and 0 are pushed. With ``num_symbols=2``::

        inputs    0 1 4 3 2 6 7 7 7 7 8
        targets   . . . . . . 0 1 0 5 .

    Tests a stack: popped symbols must be forgotten, and the symbols below them come back. POP does not change an empty
    stack. The answer, with its end token, has at most as many tokens as the stack and the actions together. Without a
    POP, the new stack alone has this many tokens, so the end token is left out.

    Source: Delétang et al. (2023), stack manipulation. The separator is our addition.
    """

    name: ClassVar = "stack_manipulation"
    version: ClassVar = 2
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 81
    # Half of the actions are a POP, so that the latest pushes alone, or the stack at the beginning alone, say little.
    # In shorter strings nearly all POPs stand right behind the PUSH that they undo.
    levels: ClassVar = tuple(
        {"load": (length - 1) // 2, "length": length, "shortest": (below + 1) // 2, "num_symbols": 4, "pop_rate": 0.5}
        for below, length in pairwise(LENGTHS)
        if length >= 24
    )
    # In the shortest strings, too many POPs still stand right behind the PUSH that they undo.
    extended_levels: ClassVar = levels[1:]
    load: ClassVar = "symbols and actions"
    shortest: int = option(2, "symbols and actions in the shortest string", low=2, high=65536)
    num_symbols: int = option(2, "number of different symbols on the stack", low=2, high=4096)
    pop_rate: float = option(1 / 3, "probability that an action is a POP; symbols to push are uniform", low=0, high=1)

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, a PUSH per symbol, POP, the end, the separator, blank and padding."""
        return 2 * self.num_symbols + 5

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw stacks of one or more symbols, then one or more actions; the actions begin at a uniform position."""
        longest = self.longest(length)
        lengths = self.draw_lengths(rng, batch_size, length)
        positions = np.arange(longest)
        is_action = positions >= rng.integers(1, lengths)
        is_pop = is_action & (rng.random((batch_size, longest)) < self.pop_rate)
        symbols = rng.integers(self.num_symbols, size=is_pop.shape)
        strings = np.where(is_pop, 2 * self.num_symbols, symbols + self.num_symbols * is_action)
        # A walk that does not fall below 0: the sum of its steps, lifted by its lowest value so far.
        steps = np.where(is_pop, -1, 1) * (positions < lengths)
        walk = steps.cumsum(axis=1)
        depths = walk - np.minimum.accumulate(walk, axis=1).clip(max=0)
        # A symbol stays if the stack never again has fewer symbols than with it on top.
        lowest_later = np.minimum.accumulate(depths[:, ::-1], axis=1)[:, ::-1]
        is_left = (steps == 1) & (depths == lowest_later)
        num_left = depths[:, -1:]
        answers = np.full_like(strings, 2 * self.num_symbols + 1)
        rows, pushed = np.nonzero(is_left)
        answers[rows, num_left[rows, 0] - depths[rows, pushed]] = symbols[rows, pushed]
        return self.lay_out(strings, lengths, answers, np.minimum(num_left + 1, lengths), length)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of naming a fixed symbol, except at positions where the end token is likelier."""
        return Bound(_floor(self.shortest, self.longest(length), self.num_symbols, self.pop_rate))

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: the stack as if there were no POPs, or the stack before all actions."""
        slots = (np.arange(inputs.shape[1]) - self.string_lengths(inputs) - 1).clip(0)
        guesses = {}
        for name, num_ids in {"without pops": 2 * self.num_symbols, "without actions": self.num_symbols}.items():
            is_pushed = inputs < num_ids
            order = np.argsort(~is_pushed, axis=1, stable=True)
            ranks = (is_pushed.sum(axis=1, keepdims=True) - 1 - slots).clip(0)
            guesses[name] = np.take_along_axis(inputs, np.take_along_axis(order, ranks, axis=1), axis=1)
            guesses[name] %= self.num_symbols
        return guesses

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of three rules that also place the end token.

        These rules assume that every POP removes a symbol, and place the end token accordingly. Before the end token,
        two of them write the guesses of :meth:`shortcuts`. The third rule writes the stack that would result if a POP
        right after another POP had no effect.
        """
        string_lengths, length = self.string_lengths(inputs), inputs.shape[1]
        positions = np.arange(length)
        slots = (positions - string_lengths - 1).clip(0)
        is_string = positions < string_lengths
        is_pop = is_string & (inputs == 2 * self.num_symbols)
        is_pushed = is_string & ~is_pop
        num_left = (is_pushed.sum(axis=1) - is_pop.sum(axis=1))[:, None]
        found = self.shortcuts(inputs)
        for name in ("without pops", "without actions"):
            found[f"{name}, end by counts"] = np.where(slots >= num_left, 2 * self.num_symbols + 1, found[name])
        is_kept = is_pushed | is_pop
        # The next kept token of each, found from behind.
        upcoming = np.minimum.accumulate(np.where(is_kept, positions, length)[:, ::-1], axis=1)[:, ::-1]
        following = np.append(upcoming[:, 1:], np.full((len(inputs), 1), length), axis=1)
        next_is_pop = np.append(is_pop, np.zeros((len(inputs), 1), dtype=bool), axis=1)
        is_undone = is_pushed & np.take_along_axis(next_is_pop, following, axis=1)
        is_pushed &= ~is_undone
        order = np.argsort(~is_pushed, axis=1, stable=True)
        ranks = (is_pushed.sum(axis=1, keepdims=True) - 1 - slots).clip(0)
        tops = np.take_along_axis(inputs, np.take_along_axis(order, ranks, axis=1), axis=1) % self.num_symbols
        found["POPs undo the PUSH before them, end by counts"] = np.where(
            slots >= num_left, 2 * self.num_symbols + 1, tops
        )
        return found


@cache
def _floor(shortest: int, longest: int, num_symbols: int, pop_rate: float) -> float:
    # law[d]: expected number of splits of a string that leave d symbols. A longer string has one action more.
    law = np.zeros(longest + 1)
    # By position: the frequency of symbols and that of ends.
    symbols, ends = np.zeros((2, 2 * longest + 1))
    for length in range(2, longest + 1):
        law[length - 1] += 1
        law = (1 - pop_rate) * np.append(0, law[:-1]) + pop_rate * np.append(law[:1] + law[1:2], np.append(law[2:], 0))
        if length < shortest:
            continue
        chances = law[: length + 1] / (length - 1)
        symbols[length + 1 : 2 * length + 1] += 1 - chances.cumsum()[:-1]
        ends[length + 1 : 2 * length + 1] += chances[:-1]
    return float(np.maximum(symbols / num_symbols, ends).sum() / (symbols + ends).sum())
