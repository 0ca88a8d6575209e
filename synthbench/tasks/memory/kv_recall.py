"""The task kv_recall."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class KvRecall(Task):
    """Read pairs of a key and a value, then one of the keys; name the value of this key.

    With ``vocabulary=8``, the separator is 7::

        inputs    3 1 4 4 5 0 7 4
        targets   . . . . . . . 4

    Tests associative recall: find the key among all others and read the token after it.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, following their code.
    """

    name: ClassVar = "kv_recall"
    source: ClassVar = "slay2026"
    length: ClassVar = 22
    min_length: ClassVar = 4  # one pair, the separator and the key
    vocabulary: int = option(64, "number of tokens, the separator among them", low=3, high=4096)

    def check_length(self, length: int) -> None:
        """Refuse an odd length, and a length with room for more pairs than there are keys.

        Raises:
            UsageError: If the task has no sequence of this length.
        """
        super().check_length(length)
        longest = 2 * (self.vocabulary - 1) + 2
        if length % 2 or length > longest:
            raise UsageError(
                f"length of task {self.name!r} is {length}; allowed: even numbers from {self.min_length} to {longest}, "
                f"for keys are distinct and vocabulary={self.vocabulary} has {self.vocabulary - 1} of them"
            )

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw pairs of distinct keys and uniform values, then append the separator and one of the keys."""
        num_pairs = (length - 2) // 2
        separator = self.vocabulary - 1
        symbols = np.tile(np.arange(separator), (batch_size, 1))
        keys = rng.permuted(symbols, axis=1)[:, :num_pairs]
        values = rng.integers(separator, size=(batch_size, num_pairs))
        rows, asked = np.arange(batch_size), rng.integers(num_pairs, size=batch_size)
        inputs = np.empty((batch_size, length), dtype=np.int64)
        inputs[:, 0:-2:2] = keys
        inputs[:, 1:-2:2] = values
        inputs[:, -2] = separator
        inputs[:, -1] = keys[rows, asked]
        return Batch(inputs, score_last(values[rows, asked], length))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess among all tokens but the separator."""
        return Bound(1 / (self.vocabulary - 1))
