"""The task dyck."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Tokens, running_levels, task
from synthbench.tasks.nesting._prefixes import NextSymbols


@task
@dataclass(frozen=True)
class Dyck(NextSymbols):
    """Read nested brackets of several types; at each position, name the set of brackets that may follow.

    At most ``depth`` brackets are open at once, and a sequence may end with open brackets. The closing bracket of the
    innermost open bracket may follow. While fewer than ``depth`` brackets are open, all opening brackets may follow as
    well. The answer is the id of the set of brackets that may follow. With k types, 0 is the set of all opening
    brackets, and 1 + i is that set plus the closing bracket of type i. The set that contains only the closing bracket
    of type i is k + 1 + i. The example is ``([()])[``, with opening brackets 0 1 and closing brackets 2 3. With
    ``num_types=2`` and ``depth=3``::

        inputs    0 1 0 2 3 2 1
        targets   1 2 3 2 1 0 2

    Tests a stack of bounded depth: the model must know the innermost open bracket even if other brackets have been
    opened and closed since then. A finite state suffices if it can hold the types of all open brackets. Attention can
    find the innermost open bracket by its depth.

    Source: Hewitt et al. (2020), Dyck-(k, m), with sets of next symbols as targets, as in Bhattamishra et al. (2020).
    Bhattamishra et al. predict each symbol separately, but count only sets that are right as a whole, so accuracies are
    comparable. Their sequences are complete words; here, a sequence is the beginning of a word.
    """

    name: ClassVar = "dyck"
    source: ClassVar = "hewitt2020rnns"
    length: ClassVar = 64
    # However long the word, the innermost open bracket is mostly one of the latest tokens, so positions where it is
    # near are not scored. No level is long enough to reach the depth: one that did would have other classes than the
    # level after it. In words shorter than 12 tokens, counting the open brackets of each type nearly suffices.
    levels: ClassVar = tuple(
        {**level, "nearest": max(2, int(level["length"]) // 8)} for level in running_levels(12, num_types=4, depth=1024)
    )
    # If the depth rises and then falls, brackets are asked at all distances, as often near as far. In a fair walk, a
    # stack over half of the tokens knows 95 % of the answers; the task is a stack over all of them.
    extended_levels: ClassVar = tuple({**level, "num_types": 16, "is_peaked": True} for level in levels[3:])
    num_types: int = option(2, "number of types of brackets", low=1, high=4096)
    depth: int = option(4, "number of brackets that may be open", low=1, high=4096)
    nearest: int = option(
        0,
        "fewest tokens from the innermost open bracket to a scored position; 0 scores all positions",
        low=0,
        high=65536,
        is_addition=True,
    )
    is_peaked: bool = option(
        default=False,
        meaning="whether three of four brackets open in the first half of a word, and close in the second",
        is_addition=True,
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or no position could be scored.
        """
        super().__post_init__()
        if self.nearest and self.depth == 1:
            raise UsageError(
                f"{self.name}:nearest is {self.nearest}; allowed: 0, for with depth=1 the innermost open bracket is "
                "always the latest token"
            )

    @property
    def vocab_size(self) -> int:
        """Number of output classes: two per type of bracket and one more. Tokens use only two ids per type."""
        return 2 * self.num_types + 1

    @property
    def min_length(self) -> int:
        """Number of tokens up to the first position that can be scored."""
        first = max(self.unscored, self.nearest + self.nearest % 2)
        # With depth=2 that bracket is on the first level, and so at an even position.
        return first + 1 + (self.nearest > 0 and self.depth == 2 and first % 2)

    def draw(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw sequences in which the number of open brackets is a random walk between 0 and ``depth``.

        The types of brackets are uniform. By default, the walk rises and falls with equal probability. With
        ``is_peaked``, it mostly rises in the first half of the sequence, and mostly falls in the second half.
        """
        # Positions come first: the loop below takes one of them at a time.
        size = (length, batch_size)
        steps = 2 * rng.integers(2, size=size) - 1
        if self.is_peaked:  # half of the steps take the direction of their half of the word
            rises = np.where(np.arange(length) < length // 2, 1, -1)[:, None]
            steps = np.where(rng.integers(2, size=size) == 1, rises, steps)
        walk = np.cumsum(steps, axis=0) % (2 * self.depth)
        depths = np.minimum(walk, 2 * self.depth - walk)
        is_open = np.diff(depths, axis=0, prepend=0) > 0
        types = rng.integers(self.num_types, size=size)
        positions = np.arange(length)[:, None]
        # Position of the innermost open bracket: this one if it opens, else the one that the stack holds at this depth.
        opened = np.broadcast_to(positions, size).copy()
        stack = np.zeros((min(self.depth, length) + 1) * batch_size, dtype=np.int64)
        tops = depths * batch_size + np.arange(batch_size)
        for places, opens, top in zip(opened, is_open, tops, strict=True):
            np.copyto(places, stack[top], where=~opens)
            stack[top] = places
        innermost = np.take_along_axis(types, opened, axis=0)
        closed = np.roll(innermost, 1, axis=0)
        inputs = np.where(is_open, innermost, self.num_types + closed)
        targets = self._sets(depths, innermost)
        if self.nearest:
            targets[(depths == 0) | (positions - opened < self.nearest)] = IGNORE
        return Batch(inputs.T.copy(), targets.T.copy())

    def floor(self, length: int) -> Bound:
        """Return the mean accuracy of the best fixed answers, one per position: the likeliest set of next brackets.

        With the option ``nearest`` above 0, at least one and fewer than ``depth`` brackets are open at a scored
        position. The set then depends only on the type of the innermost open bracket, so the floor is 1 divided by the
        number of types.
        """
        if not self.nearest:
            return super().floor(length)
        return Bound(1 / self.num_types)

    def best_guess(self, length: int) -> Float[np.ndarray, " length"]:
        """Return the probability of the likeliest set of next brackets at each position."""
        law = np.zeros(2 * self.depth)  # of the walk, which is read as depths
        law[0] = 1
        guesses = []
        for position in range(length):
            up = 0.5 if not self.is_peaked else 0.75 if position < length // 2 else 0.25
            law = up * np.roll(law, 1) + (1 - up) * np.roll(law, -1)
            ground, top = law[0], law[self.depth]
            guesses.append(max(ground, (1 - ground - top) / self.num_types, top / self.num_types))
        return np.array(guesses)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of one shortcut rule, which takes the latest opening bracket for the innermost open one.

        The latest opening bracket may already be closed. If the option ``nearest`` is above 0, it is closed at all
        scored positions. Then a different rule is used: guess the type that has the most open brackets.
        """
        is_open = inputs < self.num_types
        depths = np.cumsum(2 * is_open - 1, axis=1)
        if self.nearest:
            return {"most often open": self._sets(depths, self._most_often_open(inputs))}
        latest = np.maximum.accumulate(np.where(is_open, np.arange(inputs.shape[1]), 0), axis=1)
        return {"latest opening": self._sets(depths, np.take_along_axis(inputs, latest, axis=1))}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of rules that search only the latest tokens for the answer.

        Each additional rule searches the latest k × ``nearest`` tokens for the innermost open bracket. If this bracket
        is farther back, the rule guesses the type that has the most open brackets. There is one rule each for k = 2 and
        3, and with ``is_peaked`` also for k = 4 and 5. If the option ``nearest`` is 0, no rules are added.
        """
        found = self.shortcuts(inputs)
        if not self.nearest:
            return found
        is_open, length = inputs < self.num_types, inputs.shape[1]
        depths = np.cumsum(2 * is_open - 1, axis=1)
        positions = np.arange(length)
        # The innermost bracket opened where the depth was last reached from below.
        opened = np.zeros_like(inputs)
        latest = np.zeros((len(inputs), length + 2), dtype=np.int64)
        rows = np.arange(len(inputs))
        for position in range(length):
            depth = depths[:, position]
            latest[rows, depth] = np.where(is_open[:, position], position, latest[rows, depth])
            opened[:, position] = latest[rows, depth]
        innermost = self._sets(depths, np.take_along_axis(inputs, opened, axis=1))
        for factor in (2, 3, *((4, 5) if self.is_peaked else ())):
            is_near = positions - opened < factor * self.nearest
            found[f"innermost of the last {factor} × nearest"] = np.where(is_near, innermost, found["most often open"])
        return found

    def _most_often_open(self, inputs: Tokens) -> Tokens:
        """Find, at each position, the type with most open brackets; in a tie, the type whose bracket opened last."""
        rows, length = np.arange(len(inputs)), inputs.shape[1]
        scores = np.zeros((len(inputs), self.num_types), dtype=np.int64)
        found = np.empty_like(inputs)
        for position, tokens in enumerate(inputs.T):
            types, is_open = tokens % self.num_types, tokens < self.num_types
            # One more open bracket outweighs any position.
            num_open, latest = np.divmod(scores[rows, types], length)
            scores[rows, types] = (num_open + 2 * is_open - 1) * length + np.where(is_open, position, latest)
            found[:, position] = scores.argmax(axis=1)
        return found

    def _sets(self, depths: Int[np.ndarray, "*size"], innermost: Int[np.ndarray, "*size"]) -> Int[np.ndarray, "*size"]:
        """Return the class of the brackets that may follow, given the depth and the innermost open bracket's type.

        The depth is the number of open brackets.
        """
        return np.where(depths == 0, 0, 1 + innermost + self.num_types * (depths == self.depth))
