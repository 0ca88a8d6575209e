"""The task anbncn."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens, task

LONGEST_GAP = 6


@task
@dataclass(frozen=True)
class AnBnCn(Task):
    """Read words of n times a, n times b and n times c, each after a gap; name the next symbol where it is certain.

    Only the last two symbols of each run of b and each run of c are scored. At the second-last symbol, the answer is
    the same symbol again; at the last, it is the symbol after the run. Nothing is scored after an a, because either an
    a or a b can follow. Each word has its own n, and the last word may be cut off. The symbols a, b and c are 0, 1 and
    2, and the gap is 3. With ``largest=3``::

        inputs    3 3 0 0 1 1 2 2 3 0 0 0 1 1 1 2
        targets   . . . . 1 2 2 3 . . . . . 1 2 .

    Tests counting: the count of the symbol a is needed twice, for b and for c. Earlier positions of a run are not
    scored, because simply repeating the symbol would be right there. Gaps have 1 to 6 tokens, so that positions give no
    hints: without gaps, all words would end at multiples of 3.

    Source: Gers & Schmidhuber (2001), who use one word per sequence and score all positions.
    """

    name: ClassVar = "anbncn"
    source: ClassVar = "gers2001languages"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "table*first mark": (
                "The distance from the first a, counted, tells where every run ends: it is a counter, as the task asks."
            ),
        }
    )
    length: ClassVar = 96
    levels: ClassVar = tuple(
        {"load": most, "length": length, "smallest": fewer + 1, "largest": most}
        for fewer, most, length in (
            (1, 3, 16),
            (3, 5, 24),
            (5, 7, 32),
            (7, 10, 48),
            (10, 14, 48),
            (14, 20, 96),
            (20, 28, 96),
            (28, 40, 128),
            (40, 56, 192),
            (56, 80, 256),
            (80, 112, 384),
            (112, 160, 512),
            (160, 224, 768),
            (224, 320, 1024),
        )
    )
    # With runs of 3, the last tokens and their position give nearly all answers.
    extended_levels: ClassVar = levels[1:]
    load: ClassVar = "symbols in a run"
    smallest: int = option(2, "smallest n", low=2, high=65536)
    largest: int = option(12, "largest n; n is uniform", low=2, high=65536)

    @property
    def vocab_size(self) -> int:
        """Number of ids: three symbols and the gap."""
        return 4

    @property
    def min_length(self) -> int:
        """Number of tokens of the longest gap and the longest word together."""
        return LONGEST_GAP + 3 * self.largest

    def check_length(self, length: int) -> None:
        """Check that the first word always fits into the length, and that ``smallest`` is at most ``largest``.

        Raises:
            UsageError: If ``length`` is out of range, or if ``smallest`` exceeds ``largest``.
        """
        super().check_length(length)
        if self.smallest > self.largest:
            raise UsageError(
                f"smallest of task {self.name!r} is {self.smallest}; allowed: 2 to the largest, {self.largest}"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw gaps and words in turn until the sequence is full; the last word may be cut off."""
        size = (batch_size, length // (3 * self.smallest + 1) + 1)
        counts = rng.integers(self.smallest, self.largest, size=size, endpoint=True)
        ends = np.cumsum(rng.integers(1, LONGEST_GAP, size=size, endpoint=True) + 3 * counts, axis=1)
        is_begin = np.zeros((batch_size, length + 1), dtype=np.int64)
        np.put_along_axis(is_begin, np.minimum(ends, length), 1, axis=1)
        words = np.cumsum(is_begin[:, :length], axis=1)
        # Counted backwards from the end of its word, a symbol is in run 0, 1 or 2; before these it is in the gap.
        left = np.take_along_axis(ends, words, axis=1) - np.arange(length) - 1
        run, left_of_run = np.divmod(left, np.take_along_axis(counts, words, axis=1))
        inputs = np.where(run < 3, 2 - run, 3)
        targets = inputs + (left_of_run == 0)
        targets[(run > 1) | (left_of_run > 1)] = IGNORE
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of naming, at each position, whichever of b, c and the gap is likeliest there."""
        counts = np.arange(self.smallest, self.largest + 1)
        gaps = np.arange(1, LONGEST_GAP + 1)[:, None]
        lengths = (gaps + 3 * counts).ravel()
        begins = np.zeros(length)
        begins[0] = 1
        for position in range(1, length):
            before = position - lengths
            begins[position] = begins[before[before >= 0]].sum() / len(lengths)
        # Positions in a word after which b, c or the gap must follow.
        follows = [gaps + 2 * counts - 2], [gaps + 2 * counts - 1, gaps + 3 * counts - 2], [gaps + 3 * counts - 1]
        frequencies = np.array(
            [np.convolve(begins, np.bincount(np.ravel(places), minlength=length))[:length] for places in follows]
        )
        return Bound(float(frequencies.max(axis=0).sum() / frequencies.sum()))

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: each run goes on, or each run ends once its length is the mean of n."""
        positions = np.arange(inputs.shape[1])
        is_first = np.diff(inputs, axis=1, prepend=-1) != 0
        run_lengths = positions - np.maximum.accumulate(is_first * positions, axis=1) + 1
        is_long = 2 * run_lengths >= self.smallest + self.largest
        return {"run goes on": inputs, "long run ends": (inputs + is_long) % 4}
