"""The task modular_arithmetic."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from synthbench.options import option
from synthbench.tasks.base import Tokens, task
from synthbench.tasks.state_tracking._running import running
from synthbench.tasks.state_tracking._strings import StringTask, string_levels


@task
@dataclass(frozen=True)
class ModularArithmetic(StringTask):
    """At the separator, name the value, modulo ``modulus``, of an expression with +, - and * but no brackets.

    With ``modulus=5``, + is 5, - is 6, * is 7, the separator is 8 and the padding 9; 2 - 3 * 4 = -10 is 0 modulo 5::

        inputs    2 6 3 7 4 8 9 9
        targets   . . . . . 0 . .

    Tests tracking two numbers: the sum of all complete terms, and the current term, which a ``*`` may still multiply.
    Strings have an odd length. At unseen lengths, nonlinear recurrences and delta rules with negative eigenvalues
    should succeed; attention and other linear recurrences should fail.

    Source: Delétang et al. (2023), modular arithmetic (simple). They do not mark the end of the string; here, a
    separator does.
    """

    name: ClassVar = "modular_arithmetic"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 40
    # Strings of 5 symbols are left out, as calculating from left to right is right for most of them. That is right
    # least often if half of the operators are products. With modulus 5, strings of 7 symbols are already hard to learn.
    levels: ClassVar = string_levels(6, modulus=3, product_rate=0.5)
    modulus: int = option(5, "number of digits, and of answers", low=2, high=64)
    product_rate: float = option(1 / 3, "probability of a *; + and - are equally likely", low=0.0, high=0.9)

    @property
    def num_symbols(self) -> int:
        """Number of symbols: the digits and three operators."""
        return self.modulus + 3

    @property
    def num_answers(self) -> int:
        """Number of residues modulo ``modulus``."""
        return self.modulus

    def string_lengths(self, length: int) -> Int[np.ndarray, " lengths"]:
        """List the possible string lengths, which are odd, since digits and operators alternate."""
        return np.arange(self.shortest | 1, length, 2)

    def draw(self, rng: np.random.Generator, batch_size: int, longest: int) -> Int[np.ndarray, "batch longest"]:
        """Draw uniform digits with operators between them."""
        symbols = rng.integers(self.modulus, size=(batch_size, longest))
        uniform = rng.random((batch_size, longest // 2))
        is_minus, is_times = uniform < (1 - self.product_rate) / 2, uniform >= 1 - self.product_rate
        symbols[:, 1::2] = self.modulus + is_minus + 2 * is_times
        return symbols

    def answers(self, symbols: Int[np.ndarray, "batch symbols"]) -> Int[np.ndarray, "batch symbols"]:
        """Compute, at each position, the value of the string so far, ignoring an operator at its end."""
        digits, is_product = self._signed_digits(symbols)
        # A term begins with a constant map, which forgets the term before it.
        terms = self._apply(np.where(is_product, digits, 0), np.where(is_product, 0, digits))
        growth = terms.copy()
        growth[:, 1:] -= is_product[:, 1:] * terms[:, :-1]
        return _at_tokens(growth.cumsum(axis=1) % self.modulus, symbols.shape[1])

    def guesses(self, symbols: Int[np.ndarray, "batch symbols"]) -> dict[str, Int[np.ndarray, "batch symbols"]]:
        """Return the answers of two rules: calculate from left to right without precedence, or name the last digit."""
        digits, is_product = self._signed_digits(symbols)
        values = self._apply(np.where(is_product, digits, 1), np.where(is_product, 0, digits))
        length = symbols.shape[1]
        return {"left to right": _at_tokens(values, length), "last digit": _at_tokens(symbols[:, ::2], length)}

    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return, for each given string length, the probability of the likeliest value."""
        residues = np.arange(self.modulus)
        multiply = np.zeros((self.modulus, self.modulus))  # the term before and after a factor
        np.add.at(multiply, (residues[:, None], residues[:, None] * residues % self.modulus), 1 / self.modulus)
        values_of = ((residues[:, None] + residues) % self.modulus).ravel()
        # A negated uniform digit is uniform: + and - do the same to the distribution.
        joint = np.zeros((self.modulus, self.modulus))
        joint[0] = 1 / self.modulus
        likeliest = []  # by the number of operators
        for _ in range(int(lengths.max()) // 2 + 1):
            values = np.bincount(values_of, weights=joint.ravel())
            likeliest.append(values.max())
            joint = self.product_rate * joint @ multiply + (1 - self.product_rate) * values[:, None] / self.modulus
        chances: Float[np.ndarray, " lengths"] = np.array(likeliest)[lengths // 2]
        return chances

    def _signed_digits(
        self, symbols: Int[np.ndarray, "batch symbols"]
    ) -> tuple[Int[np.ndarray, "batch digits"], Bool[np.ndarray, "batch digits"]]:
        """Return the digits, negative after a minus, and mark the digits after a ``*``."""
        digits = symbols[:, ::2].copy()
        operators = np.full_like(digits, self.modulus)
        operators[:, 1:] = symbols[:, 1:-1:2]
        digits[operators == self.modulus + 1] *= -1
        return digits, operators == self.modulus + 2

    def _apply(
        self, slopes: Int[np.ndarray, "batch digits"], offsets: Int[np.ndarray, "batch digits"]
    ) -> Int[np.ndarray, "batch digits"]:
        """Apply to 0, one after the other, the maps ``slope * x + offset`` of all digits so far, modulo ``modulus``."""

        def after(
            first: Int[np.ndarray, "batch digits 2"], second: Int[np.ndarray, "batch digits 2"]
        ) -> Int[np.ndarray, "batch digits 2"]:
            composed: Int[np.ndarray, "batch digits 2"] = first * second[..., :1]
            composed[..., 1] += second[..., 1]
            composed %= self.modulus
            return composed

        return running(np.stack([slopes, offsets], axis=-1), after)[..., 1] % self.modulus


def _at_tokens(values: Int[np.ndarray, "batch digits"], length: int) -> Tokens:
    """Repeat the value that belongs to each digit, at the digit's token and at the operator after it."""
    return np.repeat(values, 2, axis=1)[:, :length]
