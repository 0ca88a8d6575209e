"""The task parity_final."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import option
from synthbench.tasks.base import task
from synthbench.tasks.state_tracking._parity import draw_bits, latest_parities, likelier_parity, running_parity
from synthbench.tasks.state_tracking._strings import StringTask, string_levels


@task
@dataclass(frozen=True)
class ParityFinal(StringTask):
    """At the separator, answer 1 if the number of ones in the string is odd, else 0.

    The separator is 2 and the padding 3; there are three ones::

        inputs    1 0 1 1 0 2 3 3
        targets   . . . . . 1 . .

    Tests tracking one bit that every 1 flips, with no targets along the way. At unseen lengths, attention and
    recurrences with eigenvalues from 0 to 1 should fail. Nonlinear recurrences and recurrences with negative
    eigenvalues should succeed.

    Source: Delétang et al. (2023), regular tasks. They do not mark the end of the string; here, a separator does.
    """

    name: ClassVar = "parity_final"
    source: ClassVar = "deletang2023chomsky"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "any*but even": "An odd number of ones is the answer.",
        }
    )
    length: ClassVar = 41
    levels: ClassVar = string_levels(5)
    num_symbols: ClassVar = 2
    one_rate: float = option(0.5, "probability of a one", low=0.01, high=0.99)

    def draw(self, rng: np.random.Generator, batch_size: int, longest: int) -> Int[np.ndarray, "batch longest"]:
        """Draw independent bits."""
        return draw_bits(rng, (batch_size, longest), self.one_rate)

    def answers(self, symbols: Int[np.ndarray, "batch symbols"]) -> Int[np.ndarray, "batch symbols"]:
        """Compute, at each position, the parity of the number of ones so far: 1 if the number is odd."""
        return running_parity(symbols)

    def guesses(self, symbols: Int[np.ndarray, "batch symbols"]) -> dict[str, Int[np.ndarray, "batch symbols"]]:
        """Return the answers of two rules, which ignore all but the latest bit, or all but the latest four bits."""
        return latest_parities(symbols)

    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return, for each string length, the probability of the likelier parity: 1/2 if ``one_rate`` is 1/2."""
        return likelier_parity(lengths, self.one_rate)
