"""The task overwrite_recall."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import Batch, task
from synthbench.tasks.recall._base import Dictionary
from synthbench.tasks.recall._queries import ask, look_up


@task
@dataclass(frozen=True)
class OverwriteRecall(Dictionary):
    """Read pairs of a key and a value, some keys several times; then name the latest value of each key queried.

    With ``vocabulary=9``, ``num_keys=2`` and ``num_rewritten=1``::

        inputs    3 5 1 7 3 6 1 8 8 8 3 8
        targets   . . . . . . 7 . . . 6 .

    Keys are 0 to 3, values 4 to 7, and the blank is 8. All values of a key differ. Pairs stand in random order. By
    default, each key is asked once, at a random position. With the option ``with_replacement``, each query asks for a
    random key.

    Tests replacing a value. Linear attention adds the second value to the first; the delta rule erases the first value.
    A decaying state prefers recent pairs, but forgets keys that were written only once, long ago.

    Source: Arora et al. (2024), Zoology: the variant of MQAR with updates in the code of that paper. In their code, all
    second values come after all first values, positions of queries follow a power law, and all first values are
    different. Writing a key more than twice is our addition.
    """

    name: ClassVar = "overwrite_recall"
    source: ClassVar = "arora2024zoology"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after the latest copy *": "The latest value of the key is the answer.",
        }
    )
    length: ClassVar = 64
    # All keys are written three times: if half of them were written twice, any value of the key would be right for
    # three quarters. Queries draw keys with replacement, or the keys not asked yet would give the last answers away.
    # Without blanks that makes 8 tokens per key. Low levels draw from few keys and values, as many take longer to learn
    # than a run lasts.
    levels: ClassVar = tuple(
        {
            "load": keys,
            "length": 8 * keys,
            "num_keys": keys,
            "num_rewritten": keys,
            "num_writes": 3,
            "with_replacement": True,
            "vocabulary": 49,
            "tokens_used": max(keys, 4),
        }
        for keys in (2, 3, 4, 6, 8, 12, 16, 24)
    )
    # With 2 keys, the last tokens written give both values.
    extended_levels: ClassVar = levels[1:]
    load: ClassVar = "keys"
    num_keys: int = option(8, "number of keys in a sequence, and of queries", low=1, high=4096)
    num_rewritten: int = option(4, "number of keys that are written several times", low=0, high=4096)
    vocabulary: int = option(128, "number of tokens: values, as many keys, and the blank", low=4, high=65536)
    num_writes: int = option(2, "how many times a rewritten key is written", low=2, high=64, is_addition=True)
    with_replacement: bool = option(
        default=False, meaning="whether a key may be asked several times, and another one never", is_addition=True
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or there are too few keys or values.
        """
        super().__post_init__()
        self.check_at_most("num_keys", self.num_keys_used, "the number of keys that are used")
        self.check_at_most("num_rewritten", self.num_keys, "the number of keys in a sequence")
        self.check_at_most("num_writes", self.num_answers, "the number of values that are used")

    @property
    def num_pairs(self) -> int:
        """Number of pairs of a key and a value in a sequence; a rewritten key counts several times."""
        return self.num_keys + (self.num_writes - 1) * self.num_rewritten

    @property
    def min_length(self) -> int:
        """Number of tokens: two for each pair and two for each query."""
        return 2 * self.num_pairs + 2 * self.num_keys

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw keys and values, list the pairs in random order, and ask for keys; a rewritten key has several pairs."""
        end, shape = 2 * self.num_pairs, (batch_size, self.num_keys)
        keys = distinct(rng, *shape, self.num_keys_used)
        values = self._draw_values(rng, batch_size)
        # Keys are in random order, so that those to be rewritten may as well be the first ones.
        pairs = np.concatenate([np.arange(self.num_keys), np.tile(np.arange(self.num_rewritten), self.num_writes - 1)])
        order = rng.permuted(np.tile(pairs, (batch_size, 1)), axis=1)
        rewritten, others = np.split(values, [self.num_rewritten], axis=1)
        in_order_of_keys = np.concatenate([rewritten.reshape(batch_size, -1), others[:, :, -1]], axis=1)
        written = np.empty_like(order)
        np.put_along_axis(written, np.argsort(order, axis=1, kind="stable"), in_order_of_keys, axis=1)
        inputs = np.full((batch_size, length), self.vocabulary - 1)
        inputs[:, 0:end:2] = np.take_along_axis(keys, order, axis=1)
        inputs[:, 1:end:2] = written
        latest = values[:, :, -1]
        targets = ask(rng, inputs, keys[:, :, None], latest, end, with_replacement=self.with_replacement)
        return Batch(inputs, targets)

    def _draw_values(self, rng: np.random.Generator, batch_size: int) -> Int[np.ndarray, "batch keys writes"]:
        """Draw the values of each key in the order of its pairs.

        The values of a rewritten key all differ, and those of any other key are all the same.
        """
        shape = (batch_size, self.num_keys, 1)
        first = rng.integers(self.num_answers, size=shape)
        # Other values are one to num_answers - 1 steps away from the first, around the circle.
        steps = 1 + distinct(rng, batch_size * self.num_keys, self.num_writes - 1, self.num_answers - 1)
        steps = np.where(np.arange(self.num_keys)[:, None] < self.num_rewritten, steps.reshape(*shape[:2], -1), 0)
        later = (first + steps) % self.num_answers
        return self.num_key_tokens + np.concatenate([first, later], axis=2)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the answers of two rules: the first value of the key, or the last pair's value, whatever its key."""
        end = 2 * self.num_pairs
        keys, values = inputs[:, 0:end:2], inputs[:, 1:end:2]
        return {
            "first_value": look_up(keys[:, ::-1], values[:, ::-1], inputs, self.vocabulary),
            "last_value": np.broadcast_to(values[:, -1:], inputs.shape),
        }

    def level_shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Extend :meth:`shortcuts` by a rule that names any value of the key, choosing each value equally often."""
        end = 2 * self.num_pairs
        order = np.argsort(inputs[:, 0:end:2], axis=1, kind="stable")
        keys, values = (np.take_along_axis(inputs[:, part:end:2], order, axis=1) for part in (0, 1))
        places = np.broadcast_to(np.arange(self.num_pairs), keys.shape)
        first, last = (look_up(keys[:, ::way], places[:, ::way], inputs, self.vocabulary) for way in (-1, 1))
        chosen = first + np.arange(len(inputs))[:, None] % (last - first + 1)
        return {**self.shortcuts(inputs), "any_value": np.take_along_axis(values, chosen, axis=1)}
