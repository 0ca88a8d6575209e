"""The task dyck."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.knobs import knob
from synthbench.tasks.base import Batch, task
from synthbench.tasks.nesting._prefixes import NextSymbols


@task
@dataclass(frozen=True)
class Dyck(NextSymbols):
    """Along nested brackets of several types, name the set of brackets that may follow.

    A word of balanced brackets, of bounded depth, is cut at the length. All opening brackets may follow unless the
    depth is reached, and the closing bracket of the innermost one that is open. As classes: 0 is openings only, 1 to k
    are openings and the closing bracket of type 0 to k-1, k+1 to 2k are that closing bracket only. For ``([()])`` and
    ``[``, openings 0 1 and closings 2 3. With ``num_types=2`` and ``depth=3``::

        inputs    0 1 0 2 3 2 1
        targets   1 2 3 2 1 0 2

    Tests a stack of bounded depth: which bracket is innermost after others have been closed. A finite state suffices,
    but it has to hold one type for each level; attention can find the latest open bracket by depth.

    Source: Hewitt et al. (2020), Dyck-(k, m); the sets as targets are those of Bhattamishra et al. (2020), who ask for
    each symbol by itself: a set is right there if all are, so our accuracy is theirs of single sets. Their words are
    whole; ours are beginnings, in which an opening and a closing bracket are equally likely where both may follow.
    """

    name: ClassVar = "dyck"
    source: ClassVar = "hewitt2020rnns"
    length: ClassVar = 64
    sizes: ClassVar = {
        "tiny": {"length": 24, "depth": 3},
        "small": {"length": length},
        "hard": {"length": 256, "num_types": 8, "depth": 12},
    }
    num_types: int = knob(2, "number of types of brackets", low=1, high=4096)
    depth: int = knob(4, "number of brackets that may be open", low=1, high=4096)

    @property
    def vocab_size(self) -> int:
        """Two brackets of each type, and one set more."""
        return 2 * self.num_types + 1

    def draw(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Depths are a fair walk, reflected at 0 and at the greatest depth; types are uniform."""
        # Positions come first: the loop below takes one of them at a time.
        size = (length, batch_size)
        walk = np.cumsum(2 * rng.integers(2, size=size) - 1, axis=0) % (2 * self.depth)
        depths = np.minimum(walk, 2 * self.depth - walk)
        is_open = np.diff(depths, axis=0, prepend=0) > 0
        innermost = rng.integers(self.num_types, size=size)
        stack = np.zeros((self.depth + 1) * batch_size, dtype=np.int64)
        tops = depths * batch_size + np.arange(batch_size)
        # A bracket that opens is innermost; after one that closes it is what the stack has kept at this depth.
        for types, opens, top in zip(innermost, is_open, tops, strict=True):
            np.copyto(types, stack[top], where=~opens)
            stack[top] = types
        closed = np.roll(innermost, 1, axis=0)
        inputs = np.where(is_open, innermost, self.num_types + closed)
        return Batch(inputs.T.copy(), self._sets(depths, innermost).T.copy())

    def best_guess(self, length: int) -> Float[np.ndarray, " length"]:
        """Openings only, or a closing bracket of one type with or without them, whichever is likeliest at that time."""
        law = np.zeros(self.depth + 1)
        law[0] = 1
        guesses = []
        for _ in range(length):
            opened = law / 2
            opened[[0, -1]] = law[0], 0
            closed = law - opened
            law = np.append(0, opened[:-1]) + np.append(closed[1:], 0)
            guesses.append(max(law[0], law[1:-1].sum() / self.num_types, law[-1] / self.num_types))
        return np.array(guesses)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """The type of the latest opening bracket, closed or not."""
        is_open = inputs < self.num_types
        depths = np.cumsum(2 * is_open - 1, axis=1)
        latest = np.maximum.accumulate(np.where(is_open, np.arange(inputs.shape[1]), 0), axis=1)
        return {"latest opening": self._sets(depths, np.take_along_axis(inputs, latest, axis=1))}

    def _sets(self, depths: Int[np.ndarray, "*size"], innermost: Int[np.ndarray, "*size"]) -> Int[np.ndarray, "*size"]:
        """The class of the set that may follow at a depth, given the type of the innermost bracket."""
        return np.where(depths == 0, 0, 1 + innermost + self.num_types * (depths == self.depth))
