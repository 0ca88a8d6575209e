"""The task shuffle_dyck."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from synthbench.options import option
from synthbench.tasks.base import Batch, Tokens, running_levels, task
from synthbench.tasks.nesting._prefixes import NextSymbols


@task
@dataclass(frozen=True)
class ShuffleDyck(NextSymbols):
    """Read brackets of several types, where brackets of different types may cross; name the types that may be closed.

    A type may be closed while it has an open bracket. The target encodes the set of these types as the sum of 2**i over
    all types i in it. The example is ``([)(]``, with opening brackets 0 1 and closing brackets 2 3. With
    ``num_types=2``::

        inputs    0 1 2 0 3
        targets   1 3 2 3 1

    Tests counting: one counter for each type, with no order among types. After a closing bracket, only the count tells
    whether the type is still open. A state that decays forgets counts; attention to all brackets of a type yields only
    their mean.

    Source: Bhattamishra et al. (2020), Shuffle-Dyck-k. They predict each symbol separately, and their sequences are
    complete words. Here, a sequence is the beginning of a word.
    """

    name: ClassVar = "shuffle_dyck"
    source: ClassVar = "bhattamishra2020formal"
    length: ClassVar = 64
    # At this rate counts keep growing for several hundred tokens, while the most frequent set, all types, stays below
    # 70 per cent. In shorter words the latest bracket of a type usually tells whether the type is open.
    levels: ClassVar = running_levels(12, open_rate=0.45)
    num_types: int = option(4, "number of types of brackets", low=1, high=12)
    open_rate: float = option(0.4, "probability that a bracket opens where it may also close", low=0, high=1)

    @property
    def vocab_size(self) -> int:
        """Number of token ids (two per bracket type) or answers (one per subset of the types), whichever is larger."""
        return max(2 * self.num_types, 1 << self.num_types)

    def draw(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw bracket types; a bracket opens with probability ``open_rate``, or always if none of its type is open."""
        # Positions come first: the loop below takes one of them at a time.
        types = rng.integers(self.num_types, size=(length, batch_size))
        is_open = rng.random((length, batch_size)) < self.open_rate
        counts = np.zeros(batch_size * self.num_types, dtype=np.int64)
        counters = types + np.arange(batch_size) * self.num_types
        changes = np.zeros_like(types)
        # Whether a bracket has to open depends on what all earlier ones left: hence this recursion.
        for position, counter in enumerate(counters):
            count = counts[counter]
            is_open[position] |= count == 0
            step = 2 * is_open[position] - 1
            counts[counter] = count + step
            # From or to zero: the type enters or leaves the set.
            changes[position] = step * (2 * count + step == 1)
        inputs = np.where(is_open, types, self.num_types + types)
        return Batch(inputs.T.copy(), np.cumsum(changes << types, axis=0).T.copy())

    def best_guess(self, length: int) -> Float[np.ndarray, " length"]:
        """Return the probability of the likeliest set of open types at each position.

        At a position, all sets with the same number of types are equally likely.
        """
        num_steps = np.arange(length + 1)
        is_empty = self._empty_law(length)[num_steps[:, None] - num_steps]
        # laws[j][n]: probability that, of the types so far, given ones are open and the other j are not after n steps.
        laws = [1 - is_empty[:, 0], is_empty[:, 0]]
        for num_types in range(2, self.num_types + 1):
            # The new type has a random number of the steps; the earlier types, described by laws, have the rest.
            rest = _shares(length, 1 - 1 / num_types)
            laws = [rest * (1 - is_empty) @ law for law in laws] + [rest * is_empty @ laws[-1]]
        chances: Float[np.ndarray, " length"] = np.max(laws, axis=0)[1:]
        return chances

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of one rule: a type is open exactly if its latest bracket is an opening bracket."""
        positions = np.arange(inputs.shape[1])
        sets = np.zeros_like(inputs)
        for kind in range(self.num_types):
            opened, closed = (
                np.maximum.accumulate(np.where(inputs == bracket, positions, -1), axis=1)
                for bracket in (kind, self.num_types + kind)
            )
            sets += (opened > closed) * 2**kind
        return {"latest bracket": sets}

    def _empty_law(self, longest: int) -> Float[np.ndarray, " steps"]:
        """Compute the probability that no bracket of a type is open after 0, 1, ... brackets of that type."""
        law = np.zeros(longest + 2)
        law[0] = 1
        chances = [1.0]
        for _ in range(longest):
            opened = self.open_rate * law
            opened[0] = law[0]
            law = np.append(0, opened[:-1]) + np.append((law - opened)[1:], 0)
            chances.append(law[0])
        return np.array(chances)


def _shares(longest: int, probability: float) -> Float[np.ndarray, "draws successes"]:
    """Compute the binomial probability of each number of successes in 0, 1, ... ``longest`` draws, one row each."""
    shares = np.zeros((longest + 1, longest + 1))
    shares[0, 0] = 1
    for num_draws in range(longest):
        shares[num_draws + 1] = (1 - probability) * shares[num_draws]
        shares[num_draws + 1, 1:] += probability * shares[num_draws, :-1]
    return shares
