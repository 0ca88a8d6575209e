"""The task even_pairs."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import option
from synthbench.tasks.base import task
from synthbench.tasks.state_tracking._parity import likelier_parity, running_parity
from synthbench.tasks.state_tracking._running import running
from synthbench.tasks.state_tracking._strings import StringTask


@task
@dataclass(frozen=True)
class EvenPairs(StringTask):
    """At the separator, answer 1 if the number of changes between neighbouring symbols is odd, else 0.

    With ``num_symbols=2``, the separator is 2 and the padding 3; the symbol changes three times::

        inputs    0 1 1 0 1 2 3 3
        targets   . . . . . 1 . .

    With two symbols, the task only requires finding both ends of a string: the ends differ exactly if the number of
    changes is odd. Attention and all recurrences can find the ends at any length. So the task, which has no levels of
    difficulty, is a control that all of them should pass. With more symbols, the ends do not determine the answer, and
    a model must track the parity of all changes.

    Source: Delétang et al. (2023), regular tasks. They do not mark the end of the string; here, a separator does.
    """

    name: ClassVar = "even_pairs"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 41
    not_tested: ClassVar = "A count: with two symbols, the answer is the first symbol xor the last."
    shortest: int = option(2, "symbols in the shortest string", low=2, high=65536)
    num_symbols: int = option(2, "number of different symbols", low=2, high=4096)

    def draw(self, rng: np.random.Generator, batch_size: int, longest: int) -> Int[np.ndarray, "batch longest"]:
        """Draw uniform symbols."""
        return rng.integers(self.num_symbols, size=(batch_size, longest))

    def answers(self, symbols: Int[np.ndarray, "batch symbols"]) -> Int[np.ndarray, "batch symbols"]:
        """Compute, at each position, the parity of the number of unequal neighbouring pairs so far."""
        return running_parity(_changes(symbols))

    def guesses(self, symbols: Int[np.ndarray, "batch symbols"]) -> dict[str, Int[np.ndarray, "batch symbols"]]:
        """Return the answers of two rules, which ignore all but the latest pair, or all but the latest four pairs."""
        changes = _changes(symbols)
        return {"latest pair": changes, "latest four pairs": running(changes, np.bitwise_xor, window=4)}

    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return, for each string length, the probability of the likelier parity of the number of unequal pairs."""
        return likelier_parity(lengths - 1, 1 - 1 / self.num_symbols)


def _changes(symbols: Int[np.ndarray, "batch symbols"]) -> Int[np.ndarray, "batch symbols"]:
    """Mark with 1 where a symbol differs from its predecessor, else 0."""
    changes = np.zeros_like(symbols)
    changes[:, 1:] = symbols[:, 1:] != symbols[:, :-1]
    return changes
