"""The task induction."""

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks._bounds import capped_totals, poisson
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Induction(Task):
    """The second-last token copies a token of the first half; at the end, name the token that followed the original.

    The last token is irrelevant. The original, here the first 1, may stand at any position of the first half except
    position 0. With ``vocabulary=8``::

        inputs    3 0 1 4 5 2 1 6
        targets   . . . . . . . 4

    Tests induction, but the answer is expected one position later than usual: not at the copy, but at the next
    position. By chance, the same token may also occur elsewhere in the first half, so the answer is not always certain.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as in the published code.
    """

    name: ClassVar = "induction"
    source: ClassVar = "slay2026"
    length: ClassVar = 64
    min_length: ClassVar = 5  # position 1 and its successor, before the last two positions
    vocabulary: int = option(64, "number of tokens", low=2, high=65536)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens; replace the second-last by a random token of the first half, position 0 excluded."""
        rows = np.arange(batch_size)
        inputs = rng.integers(self.vocabulary, size=(batch_size, length))
        trigger = rng.integers(1, length // 2, size=batch_size)
        inputs[:, -2] = inputs[rows, trigger]
        return Batch(inputs, score_last(inputs[rows, trigger + 1], length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.vocabulary)

    def ceiling(self, length: int) -> Bound:
        """Return the accuracy of naming the token that most often follows the second-last token in the first half."""
        return Bound(_ceiling(length // 2 - 1, self.vocabulary))


@lru_cache(maxsize=64)
def _ceiling(window: int, vocabulary: int) -> float:
    """Compute the accuracy of naming the token that most often followed copies of the trigger, the second-last token.

    The trigger copies a random token of the window. Let n(a) be the number of copies of token a in the window. Let m(a)
    be the number of those copies that are followed by the token that follows token a most often. The trigger is token a
    with probability ``n(a) / window``. The best guess is then right with probability ``m(a) / n(a)``. So the result is
    the sum over a of ``E[m(a)] / window``, which is ``vocabulary / window * E[m(a)]`` for any one token a.
    """
    mean = window / vocabulary
    # Beyond twelve standard deviations and a few counts the probability is below rounding.
    most = min(window, int(mean + 12 * sqrt(mean) + 24))
    # joint[is_copy, copies, repeats]: is the last position a copy, number of copies, number directly after a copy.
    joint = np.zeros((2, most + 1, most + 1))
    joint[0, 0, 0] = 1
    for _ in range(window):
        step = np.zeros_like(joint)
        step[0] = (joint[0] + joint[1]) * (1 - 1 / vocabulary)
        step[1, 1:, :] = joint[0, :-1, :] / vocabulary
        step[1, 1:, 1:] += joint[1, :-1, :-1] / vocabulary
        joint = step
    # The position after the window is a successor and not a copy.
    final = joint[0] + joint[1] * (1 - 1 / vocabulary)
    final[:, 1:] += joint[1, :, :-1] / vocabulary
    rate = most / 2 / (vocabulary - 1)
    totals = poisson(rate * (vocabulary - 1), most)
    at_most = np.array([capped_totals(vocabulary - 1, rate, cap, most) / totals for cap in range(most + 1)])
    # exceeding[c, n]: expected excess over c of the largest count among n uniform draws.
    exceeding = (1 - at_most)[::-1].cumsum(axis=0)[::-1]
    copies, repeats = np.nonzero(np.tri(most + 1, dtype=bool))
    most_common = repeats + exceeding[repeats, copies - repeats]
    return float(vocabulary / window * (final[copies, repeats] * most_common).sum())
