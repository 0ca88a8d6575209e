"""The task selective_copy."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class SelectiveCopy(Task):
    """From the middle on, list the tokens that followed markers in the first half; output 0 at all other positions.

    With ``vocabulary=8`` and ``num_marks=3``, the marker is 7::

        inputs    7 1 4 7 7 5 2 0 6 1 3 3
        targets   0 0 0 0 0 0 1 6 5 0 0 0

    A marker may replace a token that another marker marks: here, the third marker replaced a 6. The replaced token is
    still the answer, but the model can only guess it. If a marker is the last token of the first half, its answer is 0.

    Tests recall of marked tokens in order. The zeros before and after the answers are scored as well.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "selective_copy"
    source: ClassVar = "slay2026"
    length: ClassVar = 64
    not_tested: ClassVar = (
        "Selection, below the ceiling: zeros make up most of the score, so 0.88 is reached without reading."
    )
    vocabulary: int = option(32, "number of tokens, the marker among them", low=2, high=65536)
    num_marks: int = option(8, "number of marked tokens", low=1, high=4096)

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence, in which each half has as many positions as there are markers."""
        return 2 * self.num_marks

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens and put markers on a random subset of the first half."""
        half, marker = length // 2, self.vocabulary - 1
        inputs = rng.integers(marker, size=(batch_size, length))
        # The positions of the smallest of uniform numbers are a uniform subset.
        marks = np.argpartition(rng.random((batch_size, half)), self.num_marks - 1, axis=1)[:, : self.num_marks]
        marks.sort(axis=1)
        answers = np.take_along_axis(inputs, marks + 1, axis=1)
        answers[marks == half - 1] = 0
        np.put_along_axis(inputs, marks, marker, axis=1)
        targets = np.zeros_like(inputs)
        targets[:, half : half + self.num_marks] = answers
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of always answering 0.

        This answer is right where no marked token is asked for, and where the answer to a marker is 0.
        """
        guess = 1 / (self.vocabulary - 1)
        at_end = self.num_marks / (length // 2)
        return Bound((length - self.num_marks + (self.num_marks - 1) * guess + at_end + (1 - at_end) * guess) / length)

    def ceiling(self, length: int) -> Bound:
        """Return the accuracy of guessing the answers that a marker overwrote, and knowing all other answers."""
        num_hidden = self.num_marks * (self.num_marks - 1) / (length // 2)
        return Bound(1 - num_hidden * (1 - 1 / (self.vocabulary - 1)) / length)
