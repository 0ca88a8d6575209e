"""The task compression."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Task, task

NEGLIGIBLE = 1e-20
"""Size below which a difference of probabilities cannot change a sum in double precision."""


@task
@dataclass(frozen=True)
class Compression(Task):
    """At position t, name the token of the t-th run of equal tokens (counted from 0), or 0 if there is no t-th run.

    With ``vocabulary=8``::

        inputs    3 3 1 4 4 4 4 0
        targets   3 1 4 0 0 0 0 0

    Tests little more than estimating the number of runs, because the t-th run nearly always begins after position t.
    The answer 0 for a missing run is also an ordinary token.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as in the published code.
    """

    name: ClassVar = "compression"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    not_tested: ClassVar = (
        "Compression: attention is worth 0.0035, because nearly all runs are asked before they begin."
    )
    vocabulary: int = option(16, "number of tokens", low=2, high=65536)
    longest_run: int = option(3, "largest length of a run, before equal neighbours merge", low=1, high=64)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw runs (repetitions of one token) of uniform values and uniform lengths until the sequence is full."""
        values = rng.integers(self.vocabulary, size=(batch_size, length))
        starts = rng.integers(1, self.longest_run + 1, size=(batch_size, length)).cumsum(axis=1)
        # Runs that begin after the end share one column that is cut off.
        is_start = np.zeros((batch_size, length + 1), dtype=np.int64)
        np.put_along_axis(is_start, np.minimum(starts, length), 1, axis=1)
        inputs = np.take_along_axis(values, is_start[:, :-1].cumsum(axis=1), axis=1)
        run = np.zeros_like(inputs)
        (inputs[:, 1:] != inputs[:, :-1]).cumsum(axis=1, out=run[:, 1:])
        targets = np.zeros_like(inputs)
        # All tokens of a run write the same value to the same place.
        np.put_along_axis(targets, run, inputs, axis=1)
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of guessing 0 everywhere, which is right if there is no t-th run or its token is 0."""
        return Bound(_bounds(length, self.vocabulary, self.longest_run)[0])

    def ceiling(self, length: int) -> Bound:
        """Return the accuracy of naming the likeliest answer given the runs so far: 0, the current token or another."""
        return Bound(_bounds(length, self.vocabulary, self.longest_run)[1])


def _remaining(longest_run: int, vocabulary: int, most: int) -> Float[np.ndarray, "lasted remaining"]:
    """Compute the distribution of how many tokens the latest run still has, given how many equal tokens were read."""
    rows = [np.full(longest_run, 1 / longest_run)]
    lasting = change = 1.0
    # The last row stands for all later ones: it stops mattering when they are too rare, or too much like it.
    while len(rows) < most and lasting * change > NEGLIGIBLE:
        row = np.append(rows[-1][1:], 0) + rows[-1][0] / (vocabulary * longest_run)
        lasting *= row.sum()
        rows.append(row / row.sum())
        change = np.abs(rows[-1] - rows[-2]).max()
    return np.array(rows)


def _new_runs(length: int, vocabulary: int, longest_run: int) -> Float[np.ndarray, "steps remaining runs"]:
    """Compute the probability that at least n new runs begin within a number of steps.

    This probability depends on how many tokens the current run still has.
    """
    at_least = np.zeros((length, longest_run, length + 1))
    at_least[:, :, 0] = 1
    for steps in range(1, length):
        earlier = at_least[steps - 1]
        drawn = earlier.mean(axis=0)
        at_least[steps, 1:] = earlier[:-1]
        at_least[steps, 0, 1:] = drawn[1:] / vocabulary + drawn[:-1] * (1 - 1 / vocabulary)
    return at_least


@lru_cache(maxsize=64)
def _bounds(length: int, vocabulary: int, longest_run: int) -> tuple[float, float]:
    """Compute floor and ceiling by dynamic programming over the number of runs and the current run's length so far."""
    remaining = _remaining(longest_run, vocabulary, length)
    most = len(remaining)
    at_least = _new_runs(length, vocabulary, longest_run)
    ends = remaining[:, 0] * (1 - 1 / vocabulary)
    # repeats[k]: the value k runs ahead is the current one; neighbours differ.
    repeats = np.ones(length + 1)
    for distance in range(length):
        repeats[distance + 1] = (1 - repeats[distance]) / (vocabulary - 1)
    # state[runs - 1, lasted - 1] is the probability after each position.
    state = np.zeros((length, most))
    state[0, 0] = 1
    ceiling = 0.0
    for position in range(length):
        if position > 0:
            step = np.zeros_like(state)
            step[1:, 0] = state[:-1] @ ends
            stays = state * (1 - ends)
            step[:, 1:] = stays[:, :-1]
            step[:, -1] += stays[:, -1]
            state = step
        ahead = np.arange(position, -1, -1)
        is_there = at_least[length - 1 - position][:, ahead].T @ remaining.T
        current = repeats[ahead, None] * is_there
        other = (1 - repeats[ahead, None]) / (vocabulary - 1) * is_there
        # The current value is 0 once in ``vocabulary``; zero is then right whether or not the run is there.
        if_zero = np.maximum(1 - is_there + current, other)
        if_not_zero = np.maximum(np.maximum(1 - is_there + other, current), other)
        best = if_zero / vocabulary + if_not_zero * (1 - 1 / vocabulary)
        ceiling += (state[: position + 1] * best).sum()
    # After the last position: the run asked at position t is there if there are more than t runs.
    has_run = state.sum(axis=1)[::-1].cumsum()[::-1]
    floor = 1 - has_run.mean() * (1 - 1 / vocabulary)
    return float(floor), float(ceiling / length)
