"""The task planted_counting."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, Tokens, task

LENGTH_BY_COUNT = {4: 16, 8: 32, 12: 48, 16: 64, 24: 96, 32: 128, 48: 192, 64: 256, 96: 384, 127: 512}
"""Sequence length of each level, in tokens, by its largest count: about four times that count."""


@task
@dataclass(frozen=True)
class PlantedCounting(Task):
    """Read symbols, a separator and a query symbol; say how often the query symbol occurs before the separator.

    With ``num_symbols=4`` and ``max_count=4``, the separator is 4::

        inputs    3 1 0 1 2 1 0 4 1
        targets   . . . . . . . . 3

    Tests counting. At every length, all counts from ``min_count`` to ``max_count`` are equally likely. Attention that
    averages over tokens sees only the fraction of tokens that equal the query symbol, and needs the length to turn this
    fraction into a count. A recurrence must count every symbol, because the question comes last.

    Source: Yehudai et al. (2024), their query count task. In the paper, the counts are left to chance.
    """

    name: ClassVar = "planted_counting"
    source: ClassVar = "yehudai2024count"
    length: ClassVar = 64
    # Id 127 is the separator on all levels, and also the largest count of the highest level.
    levels: ClassVar = tuple(
        {"load": most, "length": length, "min_count": below + 1, "max_count": most, "separator": 127}
        for below, (most, length) in zip((-1, *LENGTH_BY_COUNT), LENGTH_BY_COUNT.items(), strict=False)
    )
    # With up to 4 copies, the first 9/10 of the tokens nearly always contain all of them.
    extended_levels: ClassVar = levels[1:]
    load: ClassVar = "copies"
    num_symbols: int = option(8, "number of symbols", low=2, high=4096)
    max_count: int = option(15, "the largest count", low=1, high=4096)
    min_count: int = option(0, "the smallest count, up to the largest", low=0, high=4096, is_addition=True)
    separator: int = option(
        0,
        "id of the separator, if above those of the symbols; otherwise it is the one after them",
        low=0,
        high=8192,
        is_addition=True,
    )

    @property
    def vocab_size(self) -> int:
        """Number of ids, shared by tokens and counts: 1 plus the larger of the separator's id and ``max_count``."""
        return max(self._separator, self.max_count) + 1

    @property
    def _separator(self) -> int:
        return max(self.num_symbols, self.separator)

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence: ``max_count`` copies, the separator and the symbol asked."""
        return self.max_count + 2

    def check_length(self, length: int) -> None:
        """Check the length, and that ``min_count`` is at most ``max_count``.

        Raises:
            UsageError: If ``length`` is out of range, or if ``min_count`` exceeds ``max_count``.
        """
        super().check_length(length)
        if self.min_count > self.max_count:
            raise UsageError(
                f"min_count of task {self.name!r} is {self.min_count}; allowed: up to max_count={self.max_count}"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a symbol and a count; put that many copies at random places, and other symbols everywhere else."""
        asked = rng.integers(self.num_symbols, size=(batch_size, 1))
        counts = rng.integers(self.min_count, self.max_count, size=(batch_size, 1), endpoint=True)
        is_asked = rng.permuted(np.arange(length - 2) < counts, axis=1)
        # Other symbols are 1 to num_symbols - 1 steps away, modulo num_symbols.
        steps = rng.integers(1, self.num_symbols, size=is_asked.shape)
        text = (asked + np.where(is_asked, 0, steps)) % self.num_symbols
        inputs = np.concatenate([text, np.full_like(asked, self._separator), asked], axis=1)
        return Batch(inputs, score_last(counts[:, 0], length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess among the possible counts."""
        return Bound(1 / (self.max_count - self.min_count + 1))

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules: double the symbol's count in the later half, or count a different symbol."""
        text, length = inputs[:, :-2], inputs.shape[1]
        num_late = 2 * (text[:, (length - 2) // 2 :] == inputs[:, -1:]).sum(axis=1)
        num_other = (text == (inputs[:, -1:] + 1) % self.num_symbols).sum(axis=1)
        return {"later half": score_last(num_late, length), "another symbol": score_last(num_other, length)}
