"""The task prefix_arithmetic."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import LENGTHS, Batch, Bound, Task, Tokens, task
from synthbench.tasks.nesting._brackets import Grammar


@task
@dataclass(frozen=True)
class PrefixArithmetic(Task):
    """Read an expression in prefix notation, then name its value modulo ``modulus``.

    With ``modulus=5``, + is 5, - is 6, * is 7 and = is 8. (4 - 3) + 2 is written + - 4 3 2::

        inputs    5 6 4 3 2 8
        targets   . . . . . 3

    Tests nested evaluation without written steps: an operator stands before its two operands, which may be expressions,
    and can be applied only after both have been read. The one-token answer leaves no room for intermediate results.

    All expression trees with a given number of operators are equally likely, and so are all operators and all numbers.

    Source: after the task Mano of Allen-Zhu (2025): prefix notation with +, - and * modulo 23. In Mano, the number of
    operators varies, and a token states it. Mano draws a tree from the root: at each operator, all ways to divide the
    remaining operators between the two operands are equally likely. So Mano's trees are shallower: with 63 operators,
    their mean depth is 11.6, not 23.1 as here.
    """

    name: ClassVar = "prefix_arithmetic"
    source: ClassVar = "allenzhu2025canon"
    length: ClassVar = 22
    min_length: ClassVar = 4  # one operator, two numbers and =
    levels: ClassVar = tuple({"load": length // 2 - 1, "length": length} for length in LENGTHS if length <= 384)
    load: ClassVar = "operators"
    modulus: int = option(23, "modulus, and number of numbers", low=2, high=1024)

    @property
    def _grammar(self) -> Grammar:
        return Grammar(self.modulus, num_operators=3)

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the numbers, the operators and =."""
        return self.modulus + 4

    def check_length(self, length: int) -> None:
        """Check that the length is even and in range; n operators, n + 1 numbers and the = are 2n + 2 tokens.

        Raises:
            UsageError: If the length is odd or out of range.
        """
        super().check_length(length)
        if length % 2:
            raise UsageError(f"length of task {self.name!r} is {length}; allowed: even ones from {self.min_length} on")

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw operators and numbers in random order, then rotate each sequence so that it is a valid expression."""
        num_tokens = length - 1
        is_operator = rng.permuted(np.tile(np.arange(num_tokens) < num_tokens // 2, (batch_size, 1)), axis=1)
        # An operator wants one operand more, a number one less. The expression ends where the fewest are wanted, at the
        # first such place: then at every earlier one some operand is missing (Dvoretzky & Motzkin's cycle lemma).
        wanted = np.cumsum(2 * is_operator - 1, axis=1)
        ends = wanted.argmin(axis=1)
        turned = (np.arange(num_tokens) + ends[:, None] + 1) % num_tokens
        is_operator = np.take_along_axis(is_operator, turned, axis=1)
        numbers = rng.integers(self.modulus, size=is_operator.shape)
        operators = self.modulus + rng.integers(3, size=is_operator.shape)
        inputs = np.full((batch_size, length), self.modulus + 3)
        inputs[:, :-1] = np.where(is_operator, operators, numbers)
        return Batch(inputs, score_last(self._values(inputs[:, :-1]), length))

    def _values(self, expressions: Int[np.ndarray, "batch tokens"]) -> Int[np.ndarray, " batch"]:
        """Compute the values of expressions, from the last token to the first; a stack holds the operands."""
        rows = np.arange(len(expressions))
        stack = np.zeros((len(expressions), expressions.shape[1] // 2 + 2), dtype=np.int64)
        height = np.zeros(len(expressions), dtype=np.int64)
        for tokens in expressions.T[::-1]:
            is_operator = tokens >= self.modulus
            left, right = stack[rows, height - 1], stack[rows, height - 2]
            results = self._grammar.apply(np.where(is_operator, tokens - self.modulus, 0), left, right)
            height += np.where(is_operator, -1, 1)
            stack[rows, height - 1] = np.where(is_operator, results, tokens)
        return stack[:, 0]

    def floor(self, length: int) -> Bound:
        """Return the probability of the likeliest value, which is usually 0, since products with 0 are 0."""
        return Bound(float(_value_laws(self._grammar, length // 2 - 1)[-1].max()))

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Return the task itself, and the length in tokens of expressions with ``factor`` times as many operators."""
        return self, factor * (length - 2) + 2

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of three shortcut rules that ignore the nesting; with one operator, return no guesses.

        The first two rules put the n-th operator between the n-th number and the next number, for all n. The first rule
        calculates from the left, the second from the right. The third rule applies only the first operator, to the
        first and the last number.
        """
        tokens, num_operators = inputs[:, :-1], inputs.shape[1] // 2 - 1
        if num_operators == 1:
            return {}
        order = np.argsort(tokens < self.modulus, axis=1, kind="stable")
        tokens = np.take_along_axis(tokens, order, axis=1)
        operators, numbers = tokens[:, :num_operators] - self.modulus, tokens[:, num_operators:]
        left, right = numbers[:, 0], numbers[:, -1]
        for place in range(num_operators):
            left = self._grammar.apply(operators[:, place], left, numbers[:, place + 1])
            right = self._grammar.apply(operators[:, -1 - place], numbers[:, -2 - place], right)
        outer = self._grammar.apply(operators[:, 0], numbers[:, 0], numbers[:, -1])
        found = {"from the left": left, "from the right": right, "first operator": outer}
        return {name: np.broadcast_to(values[:, None], inputs.shape) for name, values in found.items()}


@cache
def _value_laws(grammar: Grammar, most: int) -> Float[np.ndarray, "operators values"]:
    """Compute the probability of each value of random expressions with 0, 1, ... ``most`` operators, one row each."""
    values = np.arange(grammar.modulus)
    results = grammar.apply(np.arange(3)[:, None, None], values[:, None], values).ravel()
    # Numbers of trees, the Catalan numbers, over 4 to the number of operators: they outgrow a float64.
    trees = np.ones(most + 1)
    for number in range(1, most + 1):
        trees[number] = trees[number - 1] * (2 * number - 1) / (2 * number + 2)
    laws = np.full((most + 1, grammar.modulus), 1 / grammar.modulus)
    for number in range(1, most + 1):
        counts = trees[:number] * trees[number - 1 :: -1]
        pairs = (laws[:number] * (counts / counts.sum())[:, None]).T @ laws[number - 1 :: -1]
        laws[number] = np.bincount(results, weights=np.tile(pairs.ravel() / 3, 3), minlength=grammar.modulus)
    return laws
