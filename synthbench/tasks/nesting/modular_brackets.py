"""The task modular_brackets."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.options import option
from synthbench.tasks.base import Tokens, task
from synthbench.tasks.nesting._brackets import Grammar, flat_values, value_laws, write_expressions
from synthbench.tasks.nesting._evaluation import Evaluation


@task
@dataclass(frozen=True)
class ModularBrackets(Evaluation):
    """At the end, name the value, modulo ``modulus``, of a fully bracketed expression with +, - and *.

    The operators + - * are 5 6 7, the brackets 8 and 9, the end 10 and the padding 11. The example is (3 * (4 - (-2))):
    18, or 3 modulo 5. With ``modulus=5``::

        inputs    8 3 7 8 4 6 8 6 2 9 9 9 10 11 11
        targets   . . . . . . . . . . . . 3  .  .

    Tests nesting with a value at every depth: a value before an opening bracket must be kept until this bracket is
    closed. The task should separate models with a stack from models without a stack, which handle only a bounded depth.

    Source: Delétang et al. (2023), modular arithmetic. They do not mark the end of the expression; here, an end token
    does.
    """

    name: ClassVar = "modular_brackets"
    source: ClassVar = "deletang2023chomsky"
    length: ClassVar = 41
    modulus: int = option(5, "number of digits, and of values", low=2, high=64)

    @property
    def num_symbols(self) -> int:
        """Number of symbols: the digits, the operators and the brackets."""
        return self._grammar.closing + 1

    def write(
        self, rng: np.random.Generator, inputs: Tokens, lengths: Int[np.ndarray, " batch"]
    ) -> Int[np.ndarray, " batch"]:
        """Write random expressions; digits, operators and positions of operators are drawn uniformly."""
        starts = np.arange(len(inputs)) * inputs.shape[1]
        return write_expressions(rng, self._grammar, inputs.reshape(-1), starts, lengths)

    def best_guess(self, lengths: Int[np.ndarray, " lengths"]) -> Float[np.ndarray, " lengths"]:
        """Return, for each length, the probability of the likeliest value, usually 0 because of products with 0."""
        laws = value_laws(self._grammar, int(lengths.max()))
        chances: Float[np.ndarray, " lengths"] = laws[lengths].max(axis=1)
        return chances

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: calculate from left to right without brackets, or name the last digit."""
        latest = np.maximum.accumulate(np.where(inputs < self.modulus, np.arange(inputs.shape[1]), 0), axis=1)
        return {
            "left to right": flat_values(self._grammar, inputs),
            "last digit": np.take_along_axis(inputs, latest, axis=1),
        }

    @property
    def _grammar(self) -> Grammar:
        return Grammar(self.modulus, num_operators=3)
