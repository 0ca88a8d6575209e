"""The task composite_recall."""

from dataclasses import dataclass
from math import isqrt
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.errors import UsageError
from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import Batch, task
from synthbench.tasks.recall._base import Recall
from synthbench.tasks.recall._queries import ask, look_up

MAX_PAIRS = 4096


@task
@dataclass(frozen=True)
class CompositeRecall(Recall):
    """Read pairs of a two-token key and a value; when a key comes again, name its value at the key's second token.

    With ``grid=3``, ``num_values=3`` and ``num_pairs=4``::

        inputs    2 5 8 0 3 6 0 5 7 2 3 6 0 5 9 2 5 9 2 3 9 0 3 9
        targets   . . . . . . . . . . . . . 7 . . 8 . . 6 . . 6 .

    First tokens of keys are 0 to 2, second tokens 3 to 5, values 6 to 8, and the blank is 9. Each sequence draws m
    first tokens and n second tokens, with ``m * n = num_pairs`` and m as close to n as possible. All combinations of
    these first and second tokens are keys. So each token occurs in at least two keys, and one token alone usually does
    not determine the value. By default, each key is asked once, at a random position. With the option
    ``with_replacement``, each query asks for a random key.

    Tests recall by two tokens together. The two tokens of a key must be bound before the look-up, by an additional
    layer or a short convolution.

    Source: Arora et al. (2024), Zoology: the variant of MQAR with composite keys in the code of that paper. There, m
    equals n, values are distinct within a sequence, positions of queries follow a power law, and random tokens stand
    between queries. Here, m may be less than n, values may coincide, positions are uniform, and blanks stand between
    queries.
    """

    name: ClassVar = "composite_recall"
    version: ClassVar = 2
    source: ClassVar = "arora2024zoology"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after * copy of the last [2-9]": "What followed both parts of the key is the answer.",
        }
    )
    length: ClassVar = 128
    # Keys form squares, or nearly so: then one token of a key alone leaves as many values as possible to guess among.
    # Queries draw keys with replacement, or the keys not asked yet would leave fewer values to guess among. A larger
    # grid and more values take longer to learn than a run lasts.
    levels: ClassVar = tuple(
        {
            "load": pairs,
            "length": length,
            "num_pairs": pairs,
            "grid": 6,
            "num_values": 16,
            "with_replacement": True,
        }
        for pairs, length in ((4, 24), (6, 48), (9, 64), (12, 96), (16, 96), (25, 192), (36, 256))
    )
    load: ClassVar = "pairs"
    num_pairs: int = option(
        16, "number of keys, and of queries: a product of two numbers from 2 to grid", low=4, high=MAX_PAIRS
    )
    grid: int = option(8, "number of first tokens that keys are made of, and of second ones", low=2, high=256)
    num_values: int = option(64, "number of values", low=2, high=65536)
    with_replacement: bool = option(
        default=False, meaning="whether a key may be asked several times, and another one never", is_addition=True
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or ``num_pairs`` is not a product of two numbers from 2 to
                ``grid``.
        """
        super().__post_init__()
        if not _fits(self.num_pairs, self.grid):
            allowed = [pairs for pairs in range(4, MAX_PAIRS + 1) if _fits(pairs, self.grid)]
            distance = min(abs(pairs - self.num_pairs) for pairs in allowed)
            nearest = " or ".join(str(pairs) for pairs in allowed if abs(pairs - self.num_pairs) == distance)
            raise UsageError(
                f"num_pairs of task {self.name!r} is {self.num_pairs}; allowed: a product of two numbers from 2 to "
                f"{self.grid}, the size of the grid; did you mean {nearest}?"
            )

    @property
    def num_answers(self) -> int:
        """Number of values."""
        return self.num_values

    @property
    def vocab_size(self) -> int:
        """Number of ids: the first and the second tokens of keys, the values and the blank."""
        return 2 * self.grid + self.num_values + 1

    @property
    def min_length(self) -> int:
        """Number of tokens: three for each pair and three for each query."""
        return 6 * self.num_pairs

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw first tokens, second tokens, and a value for each combination; then ask for keys in random order."""
        end, shape = 3 * self.num_pairs, (batch_size, self.num_pairs)
        num_first, num_second = sides(self.num_pairs)
        cells = rng.permuted(np.tile(np.arange(self.num_pairs), (batch_size, 1)), axis=1)
        row, column = np.divmod(cells, num_second)
        first = np.take_along_axis(distinct(rng, batch_size, num_first, self.grid), row, axis=1)
        second = self.grid + np.take_along_axis(distinct(rng, batch_size, num_second, self.grid), column, axis=1)
        values = 2 * self.grid + rng.integers(self.num_values, size=shape)
        inputs = np.full((batch_size, length), self.vocab_size - 1)
        inputs[:, 0:end:3] = first
        inputs[:, 1:end:3] = second
        inputs[:, 2:end:3] = values
        keys = np.stack([first, second], axis=2)
        targets = ask(rng, inputs, keys, values, end, with_replacement=self.with_replacement)
        return Batch(inputs, targets)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of three rules that use only one token of a key: the first, the second or the rarer token.

        Each rule names the value of the last pair whose key has the same token at the same place. Of a key's two
        tokens, the rarer one occurs in fewer keys.
        """
        end = 3 * self.num_pairs
        first, second, values = inputs[:, 0:end:3], inputs[:, 1:end:3], inputs[:, 2:end:3]
        before = np.roll(inputs, 1, axis=1)  # the first token of a key, seen from the second
        same_first = look_up(first, values, before, self.vocab_size)
        same_second = look_up(second, values, inputs, self.vocab_size)
        # First and second tokens have different ids, so one table counts the keys of both.
        tokens = np.concatenate([first, second], axis=1) + self.vocab_size * np.arange(len(inputs))[:, None]
        num_keys = np.bincount(tokens.ravel(), minlength=self.vocab_size * len(inputs)).reshape(len(inputs), -1)
        is_first_rarer = np.take_along_axis(num_keys, before, axis=1) < np.take_along_axis(num_keys, inputs, axis=1)
        return {
            "same_first": same_first,
            "same_second": same_second,
            "rarer_token": np.where(is_first_rarer, same_first, same_second),
        }


def sides(num_pairs: int) -> tuple[int, int]:
    """Split ``num_pairs`` into two whole factors that differ as little as possible, the smaller one first."""
    smaller = next(side for side in range(isqrt(num_pairs), 0, -1) if num_pairs % side == 0)
    return smaller, num_pairs // smaller


def _fits(num_pairs: int, grid: int) -> bool:
    """Return True if both factors that :func:`sides` finds for ``num_pairs`` lie between 2 and ``grid``."""
    smaller, larger = sides(num_pairs)
    return smaller >= 2 and larger <= grid
