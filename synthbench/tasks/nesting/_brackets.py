"""Random arithmetic expressions with all brackets written, and their values modulo a number.

An expression of one to four symbols holds one digit d: d, -d, (d) or (-d). A longer expression is ``(left operator
right)``, where both parts are expressions and the length of the left part is drawn uniformly.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from synthbench.tasks.base import Tokens


class Grammar(NamedTuple):
    """Token ids of expressions, in order: digits, ``+``, ``-``, ``*`` (if ``num_operators`` is 3), ``(``, ``)``."""

    modulus: int
    num_operators: int

    @property
    def minus(self) -> int:
        """Token id of ``-``; the same token is the operator and the sign."""
        return self.modulus + 1

    @property
    def opening(self) -> int:
        """Token id of the opening bracket; smaller ids are digits and operators."""
        return self.modulus + self.num_operators

    @property
    def closing(self) -> int:
        """Token id of the closing bracket, which is the largest id of an expression."""
        return self.opening + 1

    def apply(
        self, operators: Int[np.ndarray, "..."], left: Int[np.ndarray, "..."], right: Int[np.ndarray, "..."]
    ) -> Int[np.ndarray, "..."]:
        """Evaluate ``left operator right`` modulo ``modulus``; the operators +, - and * are numbered 0, 1 and 2."""
        return np.choose(operators, [left + right, left - right, left * right]) % self.modulus


def write_expressions(
    rng: np.random.Generator,
    grammar: Grammar,
    line: Int[np.ndarray, " tokens"],
    starts: Int[np.ndarray, " expressions"],
    lengths: Int[np.ndarray, " expressions"],
) -> Int[np.ndarray, " expressions"]:
    """Write random expressions of the given lengths at the given positions of ``line``; return their values."""
    ends = starts + lengths - 1
    line[starts[lengths >= 3]] = grammar.opening
    line[ends[lengths >= 3]] = grammar.closing
    is_digit = lengths <= 4
    is_negative = is_digit & (lengths % 2 == 0)
    values = rng.integers(grammar.modulus, size=len(lengths))
    at = starts + lengths // 2
    line[at[is_digit]] = values[is_digit]
    line[at[is_negative] - 1] = grammar.minus
    values[is_negative] = -values[is_negative] % grammar.modulus
    if is_digit.all():
        return values
    starts, ends, lengths = starts[~is_digit], ends[~is_digit], lengths[~is_digit]
    middles = starts + rng.integers(2, lengths - 2)
    operators = rng.integers(grammar.num_operators, size=len(middles))
    line[middles] = grammar.modulus + operators
    part_starts = np.concatenate([starts, middles]) + 1
    part_ends = np.concatenate([middles, ends])
    left, right = np.split(write_expressions(rng, grammar, line, part_starts, part_ends - part_starts), 2)
    values[~is_digit] = grammar.apply(operators, left, right)
    return values


@cache
def value_laws(grammar: Grammar, longest: int) -> Float[np.ndarray, "lengths values"]:
    """Compute the distribution of the value of a random expression, for each length up to ``longest`` symbols.

    Row n has the probability of each value for expressions of n symbols. Row 0 is meaningless.
    """
    digits = np.arange(grammar.modulus)
    operators = np.arange(grammar.num_operators)
    results = grammar.apply(operators[:, None, None], digits[:, None], digits).ravel()
    laws = np.full((longest + 1, grammar.modulus), 1 / grammar.modulus)
    for length in range(5, longest + 1):
        pairs = laws[1 : length - 3].T @ laws[length - 4 : 0 : -1] / (length - 4)
        weights = np.tile(pairs.ravel() / grammar.num_operators, grammar.num_operators)
        laws[length] = np.bincount(results, weights=weights, minlength=grammar.modulus)
    return laws


def flat_values(grammar: Grammar, inputs: Tokens) -> Tokens:
    """Evaluate the tokens up to each position from left to right, ignoring the brackets."""
    values = np.zeros_like(inputs)
    value, operator, sign = np.zeros_like(inputs[:, 0]), np.zeros_like(inputs[:, 0]), np.ones_like(inputs[:, 0])
    follows_digit = np.zeros(len(inputs), dtype=bool)
    for position, token in enumerate(inputs.T):
        is_digit = token < grammar.modulus
        is_operator = (token >= grammar.modulus) & (token < grammar.opening)
        value = np.where(is_digit, grammar.apply(operator, value, sign * token), value)
        # After an operator, or at the beginning, a minus is a sign.
        operator = np.where(is_operator & follows_digit, token - grammar.modulus, operator)
        sign = np.where(is_digit, 1, np.where(is_operator & ~follows_digit, -1, sign))
        follows_digit = is_digit | (follows_digit & ~is_operator)
        values[:, position] = value
    return values
