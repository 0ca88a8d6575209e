"""The task periodic_pattern."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens, task

LENGTH_BY_PERIOD = {5: 24, 11: 48, 17: 96, 23: 96, 31: 128, 47: 192, 61: 256, 89: 384, 127: 512, 191: 768, 251: 1024}
"""Sequence length of each level, in tokens, by its longest period; each level adds at least two prime periods.

Periods of 2 and 3 are too easy: two interleaved streams with these periods repeat after 12 tokens, before any question.
"""


@task
@dataclass(frozen=True)
class PeriodicPattern(Task):
    """Read several interleaved streams, each of which repeats a pattern with its own period; name the next token.

    With ``num_streams=2``, ``shortest_period=2`` and ``longest_period=3``, one stream repeats 1 2, the other 5 3 4::

        inputs    1 5 2 3 1 4 2 5 1 3 2 4 1 5
        targets   . . . . . . . . . . . 1 5 2

    Tests finding several periods in context. The periods are different primes, drawn anew for each sequence. The whole
    sequence repeats only after a common multiple of all periods, which is usually longer than the sequence. Attention
    finds a period by comparing tokens; a fixed-size state must hold the pattern of each stream. Scoring begins after
    ``2 * longest_period`` tokens of each stream, because these tokens determine the rest of the stream.

    Source: Phadke (2025), theorem 5.1, on patterns with several incommensurate frequencies; the task itself is new. If
    a model is trained on several levels of difficulty, tests beyond these levels use longer periods.
    """

    name: ClassVar = "periodic_pattern"
    source: ClassVar = "rewa2025"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "vote by distance": (
                "The first two levels have one pair of periods each, which a fixed filter knows: it reaches .97 there "
                "and would leave no room."
            ),
        }
    )
    length: ClassVar = 104
    levels: ClassVar = tuple(
        {"load": longest, "length": length, "shortest_period": below + 1, "longest_period": longest}
        for below, (longest, length) in zip((2, *LENGTH_BY_PERIOD), LENGTH_BY_PERIOD.items(), strict=False)
    )
    load: ClassVar = "tokens a period"
    num_symbols: int = option(8, "number of symbols that patterns are made of", low=2, high=65536)
    num_streams: int = option(2, "number of streams that take turns", low=1, high=64)
    shortest_period: int = option(5, "no period is shorter, in tokens of its stream", low=2, high=65536)
    longest_period: int = option(13, "no period is longer", low=2, high=65536)

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols that patterns are made of."""
        return self.num_symbols

    @property
    def min_length(self) -> int:
        """Number of tokens up to and including the first scored position: ``2 * longest_period * num_streams``."""
        return 2 * self.longest_period * self.num_streams

    def check_length(self, length: int) -> None:
        """Check the length, and that there are enough possible periods for all streams.

        Raises:
            UsageError: If ``length`` is out of range, or if there are more streams than primes from ``shortest_period``
                to ``longest_period``.
        """
        super().check_length(length)
        num_periods = len(_primes(self.shortest_period, self.longest_period))
        if self.num_streams > num_periods:
            raise UsageError(
                f"num_streams of task {self.name!r} is {self.num_streams}; allowed: up to {num_periods}, for periods "
                f"are different primes from {self.shortest_period} to {self.longest_period}"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a different prime period and a random pattern for each stream, and interleave the streams."""
        primes = _primes(self.shortest_period, self.longest_period)
        periods = rng.permuted(np.tile(primes, (batch_size, 1)), axis=1)[:, : self.num_streams]
        patterns = rng.integers(self.num_symbols, size=(batch_size, self.num_streams * self.longest_period))
        steps, streams = np.divmod(np.arange(length + 1), self.num_streams)
        sequences = np.take_along_axis(patterns, streams * self.longest_period + steps % periods[:, streams], axis=1)
        # Two periods that both fit as many tokens as their sum, less one, predict the same continuation (Fine & Wilf).
        targets = np.where(steps[1:] < 2 * self.longest_period, IGNORE, sequences[:, 1:])
        return Batch(sequences[:, :-1].copy(), targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """Return 1: before a question, enough of each stream has been read to determine the next token."""
        return Bound(1.0)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of one shortcut rule, which assumes that the whole sequence has a single period.

        The rule takes the distance at which two tokens before the first scored position are most often equal.
        """
        unasked = inputs[:, : self.min_length]
        distances = np.arange(1, self.num_streams * self.longest_period + 1)
        agreement = [(unasked[:, distance:] == unasked[:, :-distance]).mean(axis=1) for distance in distances]
        best = distances[np.argmax(agreement, axis=0)]
        sources = np.arange(1, inputs.shape[1] + 1) - best[:, None]
        return {"one period": np.take_along_axis(inputs, sources.clip(0), axis=1)}


def _primes(low: int, high: int) -> Int[np.ndarray, " primes"]:
    """List the primes from ``low`` to ``high``."""
    numbers = np.arange(max(low, 2), high + 1)
    divisors = np.arange(2, int(high**0.5) + 1)
    is_multiple = (numbers[:, None] % divisors == 0) & (numbers[:, None] > divisors)
    primes: Int[np.ndarray, " primes"] = numbers[~is_multiple.any(axis=1)]
    return primes
