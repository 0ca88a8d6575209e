"""The task cycle_navigation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import option
from synthbench.tasks.base import task
from synthbench.tasks.state_tracking._running import running
from synthbench.tasks.state_tracking._strings import StringTask, string_levels


@task
@dataclass(frozen=True)
class CycleNavigation(StringTask):
    """Walk on a cycle from place 0: token 0 stays, 1 goes forward, 2 goes back; at the separator, name the place.

    With ``modulus=5``, the separator is 3 and the padding 4; the walk ends two places before 0, at place 3::

        inputs    2 0 2 1 2 3 4 4
        targets   . . . . . 3 . .

    Tests a modular count. For moduli of 3 or more, recurrences with real, triangular transition matrices should fail at
    unseen lengths. Nonlinear recurrences should succeed, and so should linear recurrences that can rotate their state
    by complex eigenvalues or by products of reflections.

    Source: Delétang et al. (2023), regular tasks. They do not mark the end of the string; here, a separator does.
    """

    name: ClassVar = "cycle_navigation"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 41
    levels: ClassVar = string_levels(5)
    num_symbols: ClassVar = 3
    modulus: int = option(5, "places on the cycle", low=2, high=64)
    stay_rate: float = option(1 / 3, "probability of a stay; both moves are equally likely", low=0.0, high=0.99)

    @property
    def num_answers(self) -> int:
        """Number of places on the cycle, each of which can be an answer."""
        return self.modulus

    def draw(self, rng: np.random.Generator, batch_size: int, longest: int) -> Int[np.ndarray, "batch longest"]:
        """Draw independent random moves: stay, go forward or go back."""
        uniform = rng.random((batch_size, longest))
        return (uniform >= self.stay_rate).astype(np.int64) + (uniform >= (1 + self.stay_rate) / 2)

    def answers(self, symbols: Int[np.ndarray, "batch symbols"]) -> Int[np.ndarray, "batch symbols"]:
        """Compute the place on the cycle after each move."""
        places: Int[np.ndarray, "batch symbols"] = _steps(symbols).cumsum(axis=1) % self.modulus
        return places

    def guesses(self, symbols: Int[np.ndarray, "batch symbols"]) -> dict[str, Int[np.ndarray, "batch symbols"]]:
        """Return the answers of two rules, which ignore all but the latest move, or all but the latest four moves."""
        steps = _steps(symbols)
        return {
            "latest move": steps % self.modulus,
            "latest four moves": running(steps, np.add, window=4) % self.modulus,
        }

    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return the probability of the likeliest place after each given number of moves."""
        angles = 2 * np.pi * np.arange(self.modulus) / self.modulus
        eigenvalues = self.stay_rate + (1 - self.stay_rate) * np.cos(angles)
        waves = np.cos(angles[:, None] * np.arange(self.modulus))
        places = eigenvalues ** lengths[:, None] @ waves / self.modulus
        likeliest: Float[np.ndarray, " lengths"] = places.max(axis=1)
        return likeliest


def _steps(symbols: Int[np.ndarray, "batch symbols"]) -> Int[np.ndarray, "batch symbols"]:
    """Map the moves 0, 1 and 2 to steps of 0, 1 and -1 places; steps after the end of a string are meaningless."""
    steps: Int[np.ndarray, "batch symbols"] = (symbols == 1).astype(np.int64) - (symbols == 2)
    return steps
