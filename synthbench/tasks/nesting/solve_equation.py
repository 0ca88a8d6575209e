"""The task solve_equation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import option
from synthbench.tasks.base import Tokens, task
from synthbench.tasks.nesting._brackets import Grammar, write_expressions
from synthbench.tasks.nesting._evaluation import Evaluation


@task
@dataclass(frozen=True)
class SolveEquation(Evaluation):
    """Read an equation with brackets, + and -, in which one digit is unknown; at the end, name the unknown digit.

    In the example, token 5 is ``+``, 6 is ``-``, and 7 and 8 are brackets. Token 9 is the unknown x, 10 is ``=``, 11 is
    the end, and 12 is padding. Modulo 5, (1 - (x - 2)) = 4 holds for x = 4. With ``modulus=5``::

        inputs    7 1 6 7 9 6 2 8 8 10 4 11 12
        targets   . . . . . . . . . .  . 4  .

    Tests nesting, like the task ``modular_brackets``. But the unknown stands inside the brackets: its sign depends on
    all brackets around it, and the other digits have to be moved to the right side. The solution is unique because
    there are no products.

    Source: Delétang et al. (2023), solve equation. They do not mark the end of the equation; here, an end token does.
    """

    name: ClassVar = "solve_equation"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 41
    shortest: int = option(3, "symbols in the shortest equation", low=3, high=65536)
    # Modulo 2 there are no signs, and brackets do not matter.
    modulus: int = option(5, "number of digits, and of values", low=3, high=64)

    @property
    def num_symbols(self) -> int:
        """Number of symbols: the digits, two operators, the brackets, the unknown and the =."""
        return self._unknown + 2

    def write(
        self, rng: np.random.Generator, inputs: Tokens, lengths: Int[np.ndarray, " batch"]
    ) -> Int[np.ndarray, " batch"]:
        """Draw expressions, replace a digit by x, and append = and the value; return the replaced digits."""
        rows, starts = np.arange(len(inputs)), np.arange(len(inputs)) * inputs.shape[1]
        values = write_expressions(rng, self._grammar, inputs.reshape(-1), starts, lengths - 2)
        hidden = np.where(inputs < self.modulus, rng.random(inputs.shape), -1.0).argmax(axis=1)
        digits: Int[np.ndarray, " batch"] = inputs[rows, hidden]
        inputs[rows, hidden] = self._unknown
        inputs[rows, lengths - 2] = self._unknown + 1
        inputs[rows, lengths - 1] = values
        return digits

    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return the accuracy of a uniform guess: all digits are equally likely."""
        return np.full(len(lengths), 1 / self.modulus)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: solve the equation as if it had no brackets, or name the given value."""
        is_digit, is_unknown = inputs < self.modulus, inputs == self._unknown
        is_given = np.zeros_like(is_digit)
        is_given[:, 1:] = inputs[:, :-1] == self._unknown + 1
        # The sign of a digit: how many times minus stands between the digit before it and itself.
        num_minus = np.cumsum(inputs == self._grammar.minus, axis=1)
        latest = np.maximum.accumulate(np.where(is_digit | is_unknown, num_minus, 0), axis=1)
        signs = 1 - 2 * ((num_minus - np.pad(latest, ((0, 0), (1, 0)))[:, :-1]) % 2)
        sums = np.cumsum(np.where(is_digit & ~is_given, signs * inputs, 0), axis=1)
        given = np.maximum.accumulate(np.where(is_given, inputs, 0), axis=1)
        sign = np.where(is_unknown, signs, 0).cumsum(axis=1)
        return {"without brackets": sign * (given - sums) % self.modulus, "value": given}

    @property
    def _grammar(self) -> Grammar:
        return Grammar(self.modulus, num_operators=2)

    @property
    def _unknown(self) -> int:
        return self._grammar.closing + 1
