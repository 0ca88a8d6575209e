"""The task broken_grammar."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens, task

PHILOX_KEY = 0x67617073
"""Fixed seed of the rule, which is the same for all sequences, splits and runs."""


class Rule(NamedTuple):
    """Rule that defines allowed successors of symbols: symbols stand on a circle, and only some steps are allowed."""

    symbols: Int[np.ndarray, " symbols"]
    """Token at each position of the circle."""
    steps: Int[np.ndarray, " branches"]
    """Allowed steps: those from a symbol to its possible successors."""
    others: Int[np.ndarray, " others"]
    """Steps that are not allowed, without step 0, which would repeat the symbol."""


@task
@dataclass(frozen=True)
class BrokenGrammar(Task):
    """Read a walk over symbols, interrupted by gaps of irrelevant tokens; in a gap, name the walk's latest symbol.

    A fixed rule lists the allowed successors of each symbol. Here, 3 and 2 may follow 0, 4 and 0 may follow 3, and 1
    and 3 may follow 4. The walk is 0 3 4, with gaps after 0 and 3. With ``num_symbols=5`` and ``branches=2``::

        inputs    0 1 4 3 2 4
        targets   . 0 0 . 3 .

    Tests selectivity: the walk's latest symbol decides whether the next token continues the walk or must be ignored. A
    gap never contains the latest symbol or its allowed successors. About half of the tokens in gaps are allowed
    successors of the tokens before them, so no pair of neighbours shows where a gap begins or ends.

    Gaps have uniform lengths from 0 to ``longest_gap``. Every symbol is equally likely.

    Source: after Bouhadjar et al. (2026), SelectivBench: sequences of a grammar with irregular gaps that violate its
    rules. Their task asks for the next symbol, although several may follow; this task asks for the latest symbol.
    """

    name: ClassVar = "broken_grammar"
    source: ClassVar = "bouhadjar2026selectiv"
    length: ClassVar = 64
    # Each level scores only tokens farther from the walk than any token of the level below, at three distances or more:
    # with two, naming the nearer one would be right in two thirds of the cases. In the first half, which is trained and
    # not scored, all distances are asked; otherwise there would be too little to learn from. With fewer symbols, the
    # token that no later one followed is more often the answer; with more symbols, the rule takes longer to learn.
    levels: ClassVar = tuple(
        {
            "load": longest,
            "length": 8 * longest,
            "first_new": 4 * longest,
            "num_symbols": 32,
            "longest_gap": longest,
            "nearest": below + 1,
            "asked_before": 4 * longest,
        }
        for below, longest in pairwise((1, 4, 7, 10, 14, 19, 25, 32, 40))
    )
    load: ClassVar = "tokens of a gap"
    num_symbols: int = option(16, "number of symbols", low=4, high=4096)
    branches: int = option(2, "number of symbols that may follow a symbol", low=1, high=4094)
    longest_gap: int = option(8, "tokens of the longest gap", low=1, high=65536)
    nearest: int = option(1, "fewest tokens from the walk to a token that is scored", low=1, high=65536)
    asked_before: int = option(
        0, "tokens at the beginning where all of a gap is scored", low=0, high=65536, is_addition=True
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, no symbol is left for gaps, or no token is scored.
        """
        super().__post_init__()
        if self.branches > self.num_symbols - 2:
            raise UsageError(
                f"{self.name}:branches is {self.branches}; allowed: up to {self.num_symbols - 2}, for a token of a gap "
                f"neither follows nor repeats one of the num_symbols={self.num_symbols}"
            )
        if self.nearest > self.longest_gap:
            raise UsageError(f"{self.name}:nearest is {self.nearest}; allowed: up to longest_gap={self.longest_gap}")

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols."""
        return self.num_symbols

    @property
    def min_length(self) -> int:
        """Number of tokens up to the first scored position: the walk's first symbol and ``nearest`` tokens of a gap."""
        return self.nearest + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a walk and the lengths of its gaps, and fill the gaps."""
        rule, size = rule_of(self.num_symbols, self.branches), (batch_size, length)
        gaps = rng.integers(self.longest_gap + 1, size=size)
        begins = np.cumsum(gaps + 1, axis=1) - gaps - 1
        is_walk = np.zeros((batch_size, length + 1), dtype=bool)
        np.put_along_axis(is_walk, begins.clip(max=length), values=True, axis=1)
        is_walk = is_walk[:, :-1]
        walk = np.cumsum(np.where(is_walk, rng.choice(rule.steps, size=size), 0), axis=1)
        walk += rng.integers(self.num_symbols, size=(batch_size, 1))
        steps = rule.others[rng.integers(len(rule.others), size=size)]
        follows, wanted = rng.random(size) < 0.5, rng.choice(rule.steps, size=size)
        is_other = np.zeros(self.num_symbols, dtype=bool)
        is_other[rule.others] = True
        # Steps on the circle from the symbol that the walk has reached to each token; 0 for tokens of the walk.
        away = np.zeros((length, batch_size), dtype=np.int64)
        for position in range(1, length):
            onwards = (away[position - 1] + wanted[:, position]) % self.num_symbols
            taken = np.where(follows[:, position] & is_other[onwards], onwards, steps[:, position])
            away[position] = np.where(is_walk[:, position], 0, taken)
        positions = np.arange(length)
        distance = positions - np.maximum.accumulate(np.where(is_walk, positions, 0), axis=1)
        inputs = rule.symbols[(walk + away.T) % self.num_symbols]
        reached = rule.symbols[walk % self.num_symbols]
        nearest = np.where(positions < self.asked_before, 1, self.nearest)
        return Batch(inputs, np.where(distance >= nearest, reached, IGNORE))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess, since all symbols are equally likely."""
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """Return 1: the walk begins with the first symbol, and the rule shows which later tokens continue it."""
        return Bound(1.0)

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Return the task and length for longer tests: the longest gap and the sequences are ``factor`` times as long.

        The tests score only positions whose distance from the walk's latest symbol exceeds half of the new longest gap.
        """
        longest = factor * self.longest_gap
        return replace(self, longest_gap=longest, nearest=longest // 2 + 1, asked_before=0), factor * length

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of four shortcut rules; three of them use the list of allowed successors of each symbol.

        The rule "last token" names the token before the current token. The rule "latest that fits" names the latest
        token that is an allowed successor of the token before it. The rule "before the latest break" names the latest
        token whose next token is not an allowed successor. The rule "not followed" looks back ``nearest`` to
        ``longest_gap`` tokens. It names the earliest of these tokens whose allowed successors have not been read since.
        """
        rule = rule_of(self.num_symbols, self.branches)
        places = np.argsort(rule.symbols)[inputs]
        fits = np.isin(np.diff(places, axis=1) % self.num_symbols, rule.steps)
        positions = np.arange(inputs.shape[1])
        after = np.pad(np.where(fits, positions[1:], 0), ((0, 0), (1, 0)))
        before = np.pad(np.where(fits, 0, positions[:-1]), ((0, 0), (1, 0)))
        found = {"latest that fits": after, "before the latest break": before}
        latest = {name: np.maximum.accumulate(places, axis=1) for name, places in found.items()}
        return {
            **{name: np.take_along_axis(inputs, places, axis=1) for name, places in latest.items()},
            "last token": np.concatenate([inputs[:, :1], inputs[:, :-1]], axis=1),
            "not followed": self._not_followed(inputs, rule),
        }

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of two variants of its rule "not followed".

        The rule names the earliest recent token whose allowed successors have not been read since. One variant prefers
        tokens that are allowed successors of any of the ``longest_gap + 1`` tokens before them. The other prefers
        tokens that are allowed successors of the token right before them.
        """
        rule = rule_of(self.num_symbols, self.branches)
        places = np.argsort(rule.symbols)[inputs]
        reach = min(self.longest_gap + 1, inputs.shape[1] - 1)
        follows_last = np.zeros(inputs.shape, dtype=bool)
        follows_last[:, 1:] = np.isin(np.diff(places, axis=1) % self.num_symbols, rule.steps)
        follows_any = follows_last.copy()
        for distance in range(2, reach + 1):
            steps = (places[:, distance:] - places[:, :-distance]) % self.num_symbols
            follows_any[:, distance:] |= np.isin(steps, rule.steps)
        return {
            **self.shortcuts(inputs),
            "follows and not followed": self._not_followed(inputs, rule, follows_any),
            "follows the last and not followed": self._not_followed(inputs, rule, follows_last),
        }

    def _not_followed(
        self, inputs: Tokens, rule: Rule, is_allowed: Bool[np.ndarray, "batch length"] | None = None
    ) -> Tokens:
        """Find, for each position, the earliest recent token none of whose allowed successors has been read since.

        Recent tokens are those at distances of ``nearest`` to ``longest_gap`` tokens.

        Tokens marked in ``is_allowed`` take precedence.
        """
        (batch_size, length), rows = inputs.shape, np.arange(len(inputs))
        onwards = rule.symbols[(np.argsort(rule.symbols)[:, None] + rule.steps) % self.num_symbols]
        # Next position of each symbol, and next position of any symbol that may follow a token.
        upcoming = np.full((batch_size, self.num_symbols), length)
        followed = np.empty_like(inputs)
        for position in reversed(range(length)):
            followed[:, position] = upcoming[rows[:, None], onwards[inputs[:, position]]].min(axis=1)
            upcoming[rows, inputs[:, position]] = position
        found = inputs[:, :1].repeat(length, axis=1)
        better = np.full_like(found, -1)
        positions = np.arange(length)
        for distance in range(self.nearest, min(self.longest_gap, length - 1) + 1):
            is_open = followed[:, :-distance] > positions[distance:]
            found[:, distance:] = np.where(is_open, inputs[:, :-distance], found[:, distance:])
            if is_allowed is not None:
                is_better = is_open & is_allowed[:, :-distance]
                better[:, distance:] = np.where(is_better, inputs[:, :-distance], better[:, distance:])
        return np.where(better >= 0, better, found)


@cache
def rule_of(num_symbols: int, branches: int) -> Rule:
    """Return the rule that allows each of ``num_symbols`` symbols ``branches`` successors, drawn with a fixed seed."""
    rng = np.random.Generator(np.random.Philox(key=PHILOX_KEY))
    symbols = rng.permutation(num_symbols)
    steps, others = np.split(1 + rng.permutation(num_symbols - 1), [branches])
    return Rule(symbols, steps, others)
