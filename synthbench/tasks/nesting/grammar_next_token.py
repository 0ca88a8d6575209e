"""The task grammar_next_token."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._bounds import sampled
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens, task

PHILOX_KEY = 0x67726D72
"""Fixed seed of the grammar, which is the same for all sequences, splits and seeds of runs."""

MOST_LEVELS = 16
"""Largest ``depth`` of a word."""

NUM_TOKENS = 2**13
"""Number of tokens in the sample that estimates the ceiling."""


@task
@dataclass(frozen=True)
class GrammarNextToken(Task):
    """Read words of a context-free grammar, one after the other; at each position name the next token.

    Words consist of nested constituents, each with a symbol and a level. A constituent with the symbol N on level n is
    expanded by one of two rules, N → N or N → N M. The parts N and M are one level lower, and M depends only on N and
    n. Constituents of level 0 are tokens, and constituents of level ``depth`` are words. In the example, the first
    token, 5, says that words have two levels. On level 1, M is 2 for N = 1 and 0 for N = 2. On level 2, M is 0 for
    N = 1 and 2 for N = 2. The words ((1 2) (0)) and ((2) (2 0)) follow; the last target begins a third word. With
    ``num_symbols=4`` and ``depth=2``::

        inputs    5 1 2 0 2 2 0
        targets   1 2 0 2 2 0 3

    Tests parsing: nothing marks where constituents end, and a model must remember an unfinished constituent until all
    its parts are finished. In a constituent of level n with two parts, the first token determines the first token of
    the second part. The distance between these two tokens is ``(1 + pair_rate) ** (n - 1)`` on average, since a
    constituent has two parts with probability ``pair_rate``.

    With ``scored="top"``, only tokens that begin the second part of a word are scored. The first word is not scored at
    all, because it always begins at the same position.

    Source: after the task Lano of Allen-Zhu (2025), with the grammars of Allen-Zhu & Li (2023). In Lano, rules have two
    or three parts, and a separator stands between complete words. Rules whose first part keeps the symbol N are our
    addition.
    """

    name: ClassVar = "grammar_next_token"
    version: ClassVar = 2
    source: ClassVar = "allenzhu2023grammar"
    length: ClassVar = 64
    # A ladder level with words of n levels scores what words of n - 1 levels lack. With fewer than six, the last five
    # tokens give most answers.
    levels: ClassVar = tuple(
        {"load": depth, "length": length, "depth": depth, "scored": "top"}
        for depth, length in (
            (6, 48),
            (7, 64),
            (8, 96),
            (9, 192),
            (10, 256),
            (11, 384),
        )
    )
    load: ClassVar = "levels"
    num_symbols: int = option(8, "number of symbols, on every level", low=2, high=256)
    depth: int = option(5, "levels of a word", low=1, high=MOST_LEVELS)
    pair_rate: float = option(0.6, "probability of the rule with two parts", low=0.05, high=0.95)
    scored: Literal["all", "top"] = option(
        "all", "which tokens are asked: all, or those that begin a second part of words"
    )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols, and one id for each possible depth (number of levels of words)."""
        return self.num_symbols + MOST_LEVELS

    @property
    def min_length(self) -> int:
        """Number of tokens up to the first position that can be scored: 1, or 3 with ``scored="top"``."""
        return 1 if self.scored == "all" else 3

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Refuse tests at lengths beyond the trained length.

        Raises:
            UsageError: Always, because the ceiling of longer sequences takes too long to compute.
        """
        raise UsageError(
            f"{self.name} is not stretched: its ceiling takes too long to compute; got {factor} x {length}"
        )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw words of the grammar, token by token, until the sequences are full.

        A word consists of nested constituents, each of which has one or two parts. Each token begins the second part of
        the lowest constituent whose second part has not begun yet. If there is no such constituent, the token begins a
        new word.
        """
        rows, levels = np.arange(batch_size), np.arange(self.depth)
        seconds = _grammar(self.num_symbols)
        roots = rng.integers(self.num_symbols, size=(length, batch_size))
        is_pair = rng.random((length, batch_size, self.depth)) < self.pair_rate
        symbols = np.zeros((batch_size, self.depth), dtype=np.int64)
        lacks_second = np.zeros((batch_size, self.depth + 1), dtype=bool)
        lacks_second[:, -1] = True  # above all words: another word
        tokens, begun = np.empty((2, length, batch_size), dtype=np.int64)
        for position in range(length):
            begun[position] = level = lacks_second.argmax(axis=1)
            within = level.clip(max=self.depth - 1)
            second = seconds[within, symbols[rows, within]]
            tokens[position] = token = np.where(level == self.depth, roots[position], second)
            is_below = levels < level[:, None]
            symbols = np.where(is_below, token[:, None], symbols)
            lacks_second[:, :-1] &= levels != level[:, None]
            lacks_second[:, :-1] = np.where(is_below, is_pair[position], lacks_second[:, :-1])
        inputs = np.concatenate([np.full((1, batch_size), self.num_symbols + self.depth - 1), tokens[:-1]]).T.copy()
        if self.scored == "all":
            return Batch(inputs, tokens.T.copy())
        is_later_word = (begun == self.depth).cumsum(axis=0) > 1
        return Batch(inputs, np.where((begun == self.depth - 1) & is_later_word, tokens, IGNORE).T.copy())

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess: all symbols are equally likely at every position."""
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """Estimate the accuracy of always naming the likeliest next token, given all tokens read.

        The ceiling is below 1, because the tokens read do not show which constituents are complete, and because the
        first token of a word is random.
        """
        return _ceiling(self, length)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of three rules that look up the last 1, 2 or 3 tokens in a table of frequent answers."""
        return {
            f"last {order}": _answers(self, order)[_contexts(inputs, order, self.num_symbols)] for order in (1, 2, 3)
        }


@cache
def _grammar(num_symbols: int) -> Int[np.ndarray, "levels symbols"]:
    """Draw the symbol M of each rule N → N M of the grammar: row ``n - 1`` is for level n, and the column is N."""
    rng = np.random.Generator(np.random.Philox(key=PHILOX_KEY))
    return rng.permuted(np.tile(np.arange(num_symbols), (MOST_LEVELS, 1)), axis=1)


def _contexts(inputs: Tokens, order: int, num_symbols: int) -> Tokens:
    """Encode the last ``order`` tokens at each position as one number.

    The token for the depth, and positions before the sequence, all count as one further symbol.
    """
    padded = np.pad(inputs.clip(max=num_symbols), ((0, 0), (order - 1, 0)), constant_values=num_symbols)
    contexts = np.zeros_like(inputs)
    for place in range(order):
        contexts = contexts * (num_symbols + 1) + padded[:, place : place + inputs.shape[1]]
    return contexts


@cache
def _answers(task: GrammarNextToken, order: int) -> Int[np.ndarray, " contexts"]:
    """Find the most frequent answer after each sequence of ``order`` tokens, in a sample of long sequences."""
    rng = np.random.Generator(np.random.Philox(0))
    inputs, targets = task.sample(rng, 2**8, 2**10)
    is_scored = targets != IGNORE
    contexts = _contexts(inputs, order, task.num_symbols)[is_scored]
    size = ((task.num_symbols + 1) ** order, task.num_symbols)
    counts = np.bincount(contexts * task.num_symbols + targets[is_scored], minlength=size[0] * size[1])
    answers: Int[np.ndarray, " contexts"] = counts.reshape(size).argmax(axis=1)
    return answers


class Laws(NamedTuple):
    """Probability of all tokens before each position, and their joint probability with each possible next token."""

    read: Float[np.ndarray, "batch length"]
    """Probability of the tokens before the position."""
    following: Float[np.ndarray, "batch length symbols"]
    """Probability of the tokens before the position, jointly with each next token that would be scored."""


@cache
def _ceiling(task: GrammarNextToken, length: int) -> Bound:
    """Estimate the accuracy of naming the likeliest token at each position, given all tokens before it."""
    rng = np.random.Generator(np.random.Philox(0))
    inputs, _ = task.sample(rng, max(64, NUM_TOKENS // length), length)
    # The last token is only a target: no input holds it.
    tokens = np.concatenate([inputs[:, 1:], inputs[:, :1] * 0], axis=1)
    # Probabilities of long strings underflow, so the probability of each token is multiplied by this factor.
    scale = float(np.exp(-np.log(_laws(task, tokens[:64, :16], 1.0).read[:, -1]).mean() / 15)) if length > 16 else 1.0
    right, num_scored = [], []
    chunk = max(1, 2**20 // length**2)
    for begin in range(0, len(tokens), chunk):
        read, following = _laws(task, tokens[begin : begin + chunk], scale)
        right.append((following.max(axis=2) / read).sum(axis=1))
        num_scored.append((following.sum(axis=2) / read).sum(axis=1))
    return sampled(np.concatenate(right), np.concatenate(num_scored))


def _laws(task: GrammarNextToken, tokens: Tokens, scale: float) -> Laws:
    """Compute probabilities of tokens as sums over all parses (ways to divide them into constituents).

    A constituent has the symbol of its first token. Given that symbol, ``inside[n, :, i, j]`` is the probability that a
    constituent of level n, beginning at i, covers the tokens i to j - 1. ``begins[:, i]`` is the joint probability of
    the tokens 0 to i and of a constituent that begins at i. The levels of this constituent are added from the top level
    down.
    """
    batch_size, length = tokens.shape
    seconds = _grammar(task.num_symbols)
    inside = np.zeros((task.depth + 1, batch_size, length, length))
    inside[0, :, np.arange(length - 1), np.arange(1, length)] = scale
    expected = [seconds[level][tokens] for level in range(task.depth)]
    for level, symbols in enumerate(expected):
        parts = inside[level]
        pairs = (parts * (symbols[:, :, None] == tokens[:, None, :])) @ parts
        inside[level + 1] = (1 - task.pair_rate) * parts + task.pair_rate * pairs
    begins = np.zeros((batch_size, length))
    words = np.ones((batch_size, length))
    for position in range(length):
        if position:
            words[:, position] = (begins[:, :position] * inside[-1, :, :position, position]).sum(axis=1)
        begins[:, position] = words[:, position] / task.num_symbols
    following = np.zeros((batch_size, length, task.num_symbols))
    read = words.copy()
    if task.scored == "all":
        following += words[:, :, None] / task.num_symbols
    for level in reversed(range(task.depth)):
        weights = task.pair_rate * begins[:, :, None] * inside[level]
        read += weights.sum(axis=1)
        is_symbol = expected[level][:, :, None] == np.arange(task.num_symbols)
        if task.scored == "all":
            following += weights.swapaxes(1, 2) @ is_symbol
        elif level == task.depth - 1:
            # The first word begins at the beginning.
            following = weights[:, 1:].swapaxes(1, 2) @ is_symbol[:, 1:]
        is_second = expected[level][:, :, None] == tokens[:, None, :]
        begins = begins + (weights * is_second).sum(axis=1)
    return Laws(read, following)
