"""The task listops."""

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import comb
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Inexact, Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import Tokens, task
from synthbench.tasks.nesting._evaluation import Evaluation
from synthbench.tasks.nesting._trees import Law, grow

NUM_DIGITS = 10
MIN, MAX, MED, SUM, CLOSE = range(NUM_DIGITS, NUM_DIGITS + 5)
LEAF_RATE = 0.75
"""Probability that an argument is a digit where a list may also stand, before conditioning on length."""


@task
@dataclass(frozen=True)
class Listops(Evaluation):
    """Read nested minima, maxima, medians and sums (modulo 10) of digits; at the end, name the value of the expression.

    The digits are 0 to 9; the opening brackets are MIN 10, MAX 11, MED 12 and SUM 13. The closing bracket is 14, the
    end 15 and the padding 16. The example is [MAX 2 [SUM 9 4 8] 0]. With ``depth=2``::

        inputs    11 2 13 9 4 8 14 0 14 15 16
        targets    . . . . . . . .  .  2  .

    Tests nesting: each inner list interrupts an outer list, and the value of the inner list is an argument of the outer
    operator. Rules that use only the digits or the outermost operator still score well, because an error in one
    argument of a minimum or maximum often does not change the result.

    Source: Nangia & Bowman (2018). Depth, number of arguments and frequency of digits follow Tay et al. (2021), but our
    expressions are smaller. Tay et al. draw an expression and keep it if its length is in range; here, a uniform length
    is drawn first. Here, the median of an even number of digits is the lower of the two middle digits; in their data,
    it is the mean of the two, rounded down.
    """

    name: ClassVar = "listops"
    source: ClassVar = "nangia2018listops"
    length: ClassVar = 129
    shortest: int = option(4, "symbols in the shortest expression", low=4, high=65536)
    depth: int = option(4, "number of brackets that may be open", low=1, high=64)
    arguments: int = option(5, "most arguments of an operator; the fewest are 2", low=2, high=16)

    @property
    def num_symbols(self) -> int:
        """Number of symbols: the digits, the operators and the closing bracket."""
        return CLOSE + 1

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest possible expression of ``shortest`` symbols or more, with the end token."""
        return int(self.expression_lengths(self.shortest + 4).min(initial=self.shortest + 4)) + 1

    def check_length(self, length: int) -> None:
        """Check that the length is not below ``min_length``, and not above that of the longest possible expression.

        Raises:
            UsageError: If the length is out of range.
        """
        super().check_length(length)
        longest = 1
        for _ in range(self.depth):
            longest = self.arguments * longest + 2
        if length > longest + 1:
            raise UsageError(
                f"length of task {self.name!r} is {length}; allowed: up to {longest + 1}, for expressions of "
                f"depth={self.depth} and arguments={self.arguments} have no more symbols than {longest}"
            )

    def expression_lengths(self, length: int) -> Int[np.ndarray, " lengths"]:
        """List the possible numbers of symbols of expressions; with ``arguments`` 2 or 3, some numbers never occur."""
        lengths = self._law.sizes(length - 1)
        return lengths[lengths >= self.shortest]

    def write(
        self, rng: np.random.Generator, inputs: Tokens, lengths: Int[np.ndarray, " batch"]
    ) -> Int[np.ndarray, " batch"]:
        """Draw trees, then digits and operators from the deepest level to the root; return the values of the roots."""
        line = inputs.reshape(-1)
        values = np.zeros(0, dtype=np.int64)
        for nodes in reversed(grow(rng, self._law, lengths)):
            below, values = values, rng.integers(NUM_DIGITS, size=len(nodes.sizes))
            begins = nodes.trees * inputs.shape[1] + nodes.starts
            is_operator = nodes.arities > 0
            line[begins] = values
            line[(begins + nodes.sizes - 1)[is_operator]] = CLOSE
            operators = rng.integers(MIN, CLOSE, size=is_operator.sum())
            line[begins[is_operator]] = operators
            values[is_operator] = _apply(operators, nodes.arities[is_operator], below)
        return values

    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return, for each length, the probability of the likeliest value, usually 0 or 9 due to minima and maxima."""
        laws = _value_laws(self._law, int(lengths.max()))[lengths]
        chances: Float[np.ndarray, " lengths"] = laws.max(axis=1) / laws.sum(axis=1)
        return chances

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: apply the outermost operator to all digits, or name the last digit."""
        is_digit = inputs < NUM_DIGITS
        flat = _apply(inputs[:, 0], is_digit.sum(axis=1), inputs[is_digit])
        latest = np.maximum.accumulate(is_digit * np.arange(inputs.shape[1]), axis=1)
        return {
            "outermost operator": np.repeat(flat[:, None], inputs.shape[1], axis=1),
            "last digit": np.take_along_axis(inputs, latest, axis=1),
        }

    @property
    def _law(self) -> Law:
        operators = [(1 - LEAF_RATE) / (self.arguments - 1)] * (self.arguments - 1)
        return Law((LEAF_RATE, 0.0, *operators), inner=2, levels=self.depth + 1)


def _apply(
    operators: Int[np.ndarray, " operators"],
    arities: Int[np.ndarray, " operators"],
    arguments: Int[np.ndarray, " arguments"],
) -> Int[np.ndarray, " operators"]:
    """Compute the value of each operator; ``arguments`` lists the first operator's arguments, then the second's, ..."""
    is_argument = np.arange(arities.max(initial=0)) < arities[:, None]
    table = np.full(is_argument.shape, NUM_DIGITS)
    table[is_argument] = arguments
    table.sort(axis=1)
    ranks = np.select([operators == MAX, operators == MED], [arities - 1, (arities - 1) // 2])
    sums = (table * is_argument).sum(axis=1) % NUM_DIGITS
    return np.where(operators == SUM, sums, np.take_along_axis(table, ranks[:, None], axis=1)[:, 0])


@cache
def _value_laws(law: Law, longest: int) -> Float[np.ndarray, "lengths values"]:
    """Compute the probability that an expression has n symbols and the value v, for n up to ``longest`` and each v."""
    # weights[i, j]: with i arguments up to a value and j above it, how often MIN, MAX and MED are up to it.
    weights = np.zeros((len(law.arities), len(law.arities)))
    for low, high in product(range(len(law.arities)), repeat=2):
        if 0 < low + high < len(law.arities):
            num_operators = (low >= 1) + (high == 0) + (low >= high)  # MIN, MAX, MED
            weights[low, high] = law.arities[low + high] * comb(low + high, low) * num_operators / 4
    nothing = np.eye(1, longest + 1)[0]
    laws = np.zeros((longest + 1, NUM_DIGITS))
    laws[1] = 1 / NUM_DIGITS
    for _ in range(law.levels - 1):
        at_most = np.cumsum(laws, axis=1).T
        ordered = []
        for below, above in zip(at_most, at_most[-1] - at_most, strict=True):
            powers = [nothing]
            for _ in law.arities[1:]:
                powers.append(np.convolve(powers[-1], above)[: longest + 1])
            ordered.append(_polynomial(weights @ powers, below))
        # Distributions of sums modulo 10 are products in Fourier space (of characters).
        characters = np.fft.rfft(laws, axis=1).T
        coefficients = np.outer([0.0, *law.arities[1:]], nothing) / 4
        sums = np.fft.irfft([_polynomial(coefficients, character) for character in characters], NUM_DIGITS, axis=0)
        laws = np.zeros_like(laws)
        laws[1] = law.arities[0] / NUM_DIGITS
        laws[law.inner :] += (np.diff(ordered, axis=0, prepend=0) + sums).T[: -law.inner]
    return laws


def _polynomial(
    coefficients: Inexact[np.ndarray, "powers sizes"], base: Inexact[np.ndarray, " sizes"]
) -> Inexact[np.ndarray, " sizes"]:
    """Evaluate a polynomial of a distribution, ``base``, where products are convolutions.

    ``coefficients`` are arrays like ``base``, from the lowest power to the highest.
    """
    total = np.zeros_like(base)
    for coefficient in coefficients[::-1]:
        total = np.convolve(total, base)[: len(base)] + coefficient
    return total
