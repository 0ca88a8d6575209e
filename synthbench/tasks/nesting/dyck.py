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
    """Along nested brackets of several types, name the set of brackets that may follow.

    A word of balanced brackets, of bounded depth, is cut at the length. Any opening bracket may follow, unless the
    depth is reached, and the closing bracket of the innermost open one. Class 0 is openings only, 1 to k are openings
    and the closing bracket of type 0 to k-1, k+1 to 2k are that closing bracket only. For ``([()])`` and ``[``,
    openings 0 1 and closings 2 3. With ``num_types=2`` and ``depth=3``::

        inputs    0 1 0 2 3 2 1
        targets   1 2 3 2 1 0 2

    Tests a stack of bounded depth: know the innermost bracket after others have been closed. A finite state suffices,
    but must hold one type for each level; attention can find the latest open bracket by depth.

    Source: Hewitt et al. (2020), Dyck-(k, m); the sets as targets are those of Bhattamishra et al. (2020), who ask for
    each symbol separately and count a set as right if all are, so accuracies of single sets agree. Their words are
    whole; ours are beginnings, in which an opening and a closing bracket are equally likely where both may follow.
    """

    name: ClassVar = "dyck"
    source: ClassVar = "hewitt2020rnns"
    length: ClassVar = 64
    # The innermost open bracket is mostly one of the latest tokens, however long the word, so positions where it is
    # near are not scored. The depth is out of reach on every level: where one reaches it, other sets follow than on the
    # level above. In words shorter than 12 tokens counting the open brackets of each type nearly suffices.
    levels: ClassVar = tuple(
        {**level, "nearest": max(2, int(level["length"]) // 8)} for level in running_levels(12, num_types=4, depth=1024)
    )
    # A word that rises and falls again asks for brackets at all distances, as often near as far: of a fair walk a stack
    # over half of the tokens knows 95 %. A stack over all of them is the task.
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
        """Check the options, individually and against each other.

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
        """Two brackets of each type, and one set more."""
        return 2 * self.num_types + 1

    @property
    def min_length(self) -> int:
        """One scored position: brackets come in pairs after the innermost open one."""
        first = max(self.unscored, self.nearest + self.nearest % 2)
        # With two levels that bracket is in the first one, and so at an even position.
        return first + 1 + (self.nearest > 0 and self.depth == 2 and first % 2)

    def draw(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw depths as a fair walk, reflected at 0 and the greatest depth, and uniform types."""
        # Positions come first: the loop below takes one of them at a time.
        size = (length, batch_size)
        steps = 2 * rng.integers(2, size=size) - 1
        if self.is_peaked:  # half of the steps are drawn again as what their half of the word has more of
            rises = np.where(np.arange(length) < length // 2, 1, -1)[:, None]
            steps = np.where(rng.integers(2, size=size) == 1, rises, steps)
        walk = np.cumsum(steps, axis=0) % (2 * self.depth)
        depths = np.minimum(walk, 2 * self.depth - walk)
        is_open = np.diff(depths, axis=0, prepend=0) > 0
        types = rng.integers(self.num_types, size=size)
        positions = np.arange(length)[:, None]
        # Where the innermost open bracket stands: here after one that opens, else where the stack has it at this depth.
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
        """Guess the likeliest set at each position, or one type if the innermost open bracket must be far.

        Then the depth is never the greatest, and each type has one set.
        """
        if not self.nearest:
            return super().floor(length)
        return Bound(1 / self.num_types)

    def best_guess(self, length: int) -> Float[np.ndarray, " length"]:
        """Return the probability of the likeliest class at each position, over the walk's distribution."""
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
        """Name the latest opening bracket, closed or not; if that is never right, the type most often open."""
        is_open = inputs < self.num_types
        depths = np.cumsum(2 * is_open - 1, axis=1)
        if self.nearest:
            return {"most often open": self._sets(depths, self._most_often_open(inputs))}
        latest = np.maximum.accumulate(np.where(is_open, np.arange(inputs.shape[1]), 0), axis=1)
        return {"latest opening": self._sets(depths, np.take_along_axis(inputs, latest, axis=1))}

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Add the innermost bracket among the last few times ``nearest`` tokens.

        Where all of them are closed again, it is the type most often open.
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
        """Find the type with most open brackets; in a tie, the one opened last."""
        rows, length = np.arange(len(inputs)), inputs.shape[1]
        scores = np.zeros((len(inputs), self.num_types), dtype=np.int64)
        found = np.empty_like(inputs)
        for position, tokens in enumerate(inputs.T):
            types, is_open = tokens % self.num_types, tokens < self.num_types
            # One open bracket counts more than any position.
            num_open, latest = np.divmod(scores[rows, types], length)
            scores[rows, types] = (num_open + 2 * is_open - 1) * length + np.where(is_open, position, latest)
            found[:, position] = scores.argmax(axis=1)
        return found

    def _sets(self, depths: Int[np.ndarray, "*size"], innermost: Int[np.ndarray, "*size"]) -> Int[np.ndarray, "*size"]:
        """Number the set that may follow at a depth, given the type of the innermost bracket."""
        return np.where(depths == 0, 0, 1 + innermost + self.num_types * (depths == self.depth))
