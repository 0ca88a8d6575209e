"""The task query_first_recall."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int, Shaped

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._targets import score_last
from synthbench.tasks.base import Batch, task
from synthbench.tasks.recall._base import Recall


@task
@dataclass(frozen=True)
class QueryFirstRecall(Recall):
    """Read a key, then pairs of a key and a value; at the question mark, name the value of the first key.

    Keys are 0 to 3, values 4 to 6, and the question mark is 7. With ``num_keys=4`` and ``num_values=3``::

        inputs    2 0 5 2 4 1 5 1 6 7
        targets   . . . . . . . . . 4

    Tests selection, not the size of memory: the key asked about comes first, so memory for one pair suffices at any
    length. In the task ``mqar`` the queries come last, so all pairs must be kept. If a mechanism fails here, memory is
    not its problem: it cannot use one token to decide which later tokens to keep.

    The first key stands in exactly one pair, at a random position. All other pairs have random keys that differ from
    the first key. All values are random.

    Source: after Arora et al. (2024), Just read twice: a recurrent model that reads the question first has to keep less
    of the text. Their data are texts; keys, values and layout are ours.
    """

    name: ClassVar = "query_first_recall"
    source: ClassVar = "arora2024twice"
    length: ClassVar = 66
    min_length: ClassVar = 4  # the key, its pair and the question mark
    # Low levels draw from few keys and values, as many take longer to learn than a run lasts. With 128 keys,
    # several stand in a single pair even at 1,024 tokens; with 64, only the first key would.
    levels: ClassVar = tuple(
        {"load": pairs, "length": 2 * pairs + 2, "tokens_used": min(2 * pairs, 128)}
        for pairs in (2, 3, 4, 6, 8, 12, 16, 22, 32, 44, 60, 85, 120, 170, 241, 341, 483)
    )
    load: ClassVar = "pairs"
    num_keys: int = option(128, "number of keys", low=2, high=4096)
    num_values: int = option(16, "number of values", low=2, high=4096)
    tokens_used: int = option(
        0, "number of keys that pairs draw from, and at most of values, the first ones; 0 is all", low=0, high=4096
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or ``tokens_used`` is 1 or exceeds the number of keys.
        """
        super().__post_init__()
        self.check_at_most("tokens_used", self.num_keys, "the number of keys")
        if self._num_used < 2:
            raise UsageError(f"tokens_used of task {self.name!r} is 1; allowed: 0, or 2 and more")

    @property
    def num_answers(self) -> int:
        """Number of values that occur: the smaller of ``num_values`` and the number of keys that occur."""
        return min(self._num_used, self.num_values)

    @property
    def _num_used(self) -> int:
        return self.tokens_used or self.num_keys

    @property
    def vocab_size(self) -> int:
        """Number of ids: the keys, the values and the question mark."""
        return self.num_keys + self.num_values + 1

    def check_length(self, length: int) -> None:
        """Check that the length is even and in range; a key, n pairs and a question mark are 2n + 2 tokens.

        Raises:
            UsageError: If the length is odd or out of range.
        """
        super().check_length(length)
        if length % 2:
            raise UsageError(f"length of task {self.name!r} is {length}; allowed: even numbers from {self.min_length}")

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw the first key, then pairs of other keys and values; put the first key into one of these pairs."""
        num_pairs, rows = (length - 2) // 2, np.arange(batch_size)
        first = rng.integers(self._num_used, size=batch_size)
        # Other keys are 1 to num_used - 1 steps away from the first, around the circle.
        steps = rng.integers(1, self._num_used, size=(batch_size, num_pairs))
        place = rng.integers(num_pairs, size=batch_size)
        steps[rows, place] = 0
        values = self.num_keys + rng.integers(self.num_answers, size=(batch_size, num_pairs))
        inputs = np.full((batch_size, length), self.vocab_size - 1)
        inputs[:, 0] = first
        inputs[:, 1:-1:2] = (first[:, None] + steps) % self._num_used
        inputs[:, 2::2] = values
        inputs[:, -1] = self.vocab_size - 1
        return Batch(inputs, score_last(values[rows, place], length))

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of four shortcut rules: the last value, or the most frequent value of certain pairs.

        Three rules name the most frequent value: of all pairs, of the later half of the pairs, and of the pairs whose
        key occurs once.
        """
        keys, values = inputs[:, 1:-1:2], inputs[:, 2:-1:2] - self.num_keys
        num_pairs = keys.shape[1]
        is_counted = {
            "most_frequent_value": np.ones_like(keys),
            "most_frequent_later_value": np.broadcast_to(np.arange(num_pairs) >= num_pairs // 2, keys.shape),
            "most_frequent_value_of_single_keys": np.take_along_axis(_counts(keys, self.num_keys), keys, axis=1) == 1,
        }
        answers = {
            name: _counts(values, self.num_values, which).argmax(axis=1, keepdims=True)
            for name, which in is_counted.items()
        }
        answers["last_value"] = values[:, -1:]
        return {name: np.broadcast_to(self.num_keys + answer, inputs.shape) for name, answer in answers.items()}


def _counts(
    symbols: Int[np.ndarray, "batch items"], num_symbols: int, weights: Shaped[np.ndarray, "batch items"] | None = None
) -> Int[np.ndarray, "batch symbols"]:
    """Count how often each symbol occurs in each row; with ``weights``, only the items with weight 1 count."""
    counts = np.zeros((len(symbols), num_symbols), dtype=np.int64)
    rows = np.broadcast_to(np.arange(len(symbols))[:, None], symbols.shape)
    np.add.at(counts, (rows, symbols), 1 if weights is None else weights)
    return counts
