"""The task alias_recall."""

from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import Batch, Task, task
from synthbench.tasks.recall._base import Recall
from synthbench.tasks.recall._queries import ask

PHILOX_KEY = 0x616C696173
"""Fixed seed that assigns names to keys, the same for all sequences, splits and runs."""


@task
@dataclass(frozen=True)
class AliasRecall(Recall):
    """Read pairs of a key and a value; at a synonym of a key, name the key's value.

    Each key has several fixed names, its synonyms, but the inputs do not show which names belong to the same key. In
    the example, 0 and 3 are the names of one key, and 1 and 2 are the names of the other key. Values are 4 to 6, and
    the blank is 7. With ``num_keys=2``, ``num_values=3`` and ``num_pairs=2``::

        inputs    1 5 3 4 0 7 2 7
        targets   . . . . 4 . 5 .

    Tests recall by meaning: the token asked about has not occurred earlier, so searching for an earlier copy of it
    fails. Before recall can begin, a model must learn from the targets which names are synonyms. A pair shows one
    random name of its key, and its query shows another name. All values in a sequence are different.

    Source: our own design: the multi-query associative recall of Arora et al. (2024), extended by synonyms of keys.
    """

    name: ClassVar = "alias_recall"
    source: ClassVar = "arora2024zoology"
    length: ClassVar = 64
    # As for mqar, low levels draw from few keys and values.
    levels: ClassVar = tuple(
        {"load": pairs, "length": 4 * pairs, "num_pairs": pairs, "tokens_used": min(2 * pairs, 32)}
        for pairs in (2, 3, 4, 6, 8, 12, 16, 24, 32)
    )
    load: ClassVar = "pairs"
    num_keys: int = option(32, "number of keys", low=1, high=4096)
    num_names: int = option(2, "number of names of a key", low=2, high=64)
    num_values: int = option(32, "number of values", low=2, high=4096)
    num_pairs: int = option(8, "number of pairs, each of which is asked once", low=1, high=4096)
    tokens_used: int = option(
        0, "number of keys that pairs draw from, and of values, the first ones; 0 is all", low=0, high=4096
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or there are too few keys or values.
        """
        super().__post_init__()
        self.check_at_most("tokens_used", min(self.num_keys, self.num_values), "the number of keys and of values")
        self.check_at_most("num_pairs", self.tokens_used or self.num_keys, "the number of keys that are used")
        self.check_at_most("num_pairs", self.num_answers, "the number of values that are used")

    @property
    def num_answers(self) -> int:
        """Number of values that occur: ``tokens_used``, or ``num_values`` if ``tokens_used`` is 0."""
        return self.tokens_used or self.num_values

    @property
    def _num_name_tokens(self) -> int:
        return self.num_keys * self.num_names

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the names of all keys, the values and the blank."""
        return self._num_name_tokens + self.num_values + 1

    @property
    def min_length(self) -> int:
        """Number of tokens: two for each pair and two for each query."""
        return 4 * self.num_pairs

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw distinct keys, two different names of each key, and distinct values; ask for keys by the second name."""
        end = 2 * self.num_pairs
        keys = distinct(rng, batch_size, self.num_pairs, self.tokens_used or self.num_keys)
        values = self._num_name_tokens + distinct(rng, batch_size, self.num_pairs, self.num_answers)
        stored = rng.integers(self.num_names, size=keys.shape)
        asked = (stored + rng.integers(1, self.num_names, size=keys.shape)) % self.num_names
        names = names_of(self.num_keys, self.num_names)
        inputs = np.full((batch_size, length), self.vocab_size - 1)
        inputs[:, 0:end:2] = names[keys, stored]
        inputs[:, 1:end:2] = values
        targets = ask(rng, inputs, names[keys, asked][:, :, None], values, end)
        return Batch(inputs, targets)

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Return the task and the length, in tokens, for tests that are ``factor`` times as long as training.

        If there are enough keys and values, sequences also have ``factor`` times as many pairs.
        """
        pairs = factor * self.num_pairs
        return (
            replace(self, num_pairs=pairs)
            if pairs <= min(self.tokens_used or self.num_keys, self.num_answers)
            else self
        ), factor * length

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the answers of two rules: the last pair's value, or the n-th pair's value at the n-th query."""
        end = 2 * self.num_pairs
        values = inputs[:, 1:end:2]
        is_query = (inputs < self._num_name_tokens) & (np.arange(inputs.shape[1]) >= end)
        query = np.clip(is_query.cumsum(axis=1) - 1, 0, self.num_pairs - 1)
        return {
            "last_value": np.broadcast_to(values[:, -1:], inputs.shape),
            "same_order": np.take_along_axis(values, query, axis=1),
        }


@cache
def names_of(num_keys: int, num_names: int) -> Int[np.ndarray, "keys names"]:
    """List the token ids of the names of each key; all names of a key mean the same."""
    rng = np.random.Generator(np.random.Philox(key=PHILOX_KEY))
    return rng.permutation(num_keys * num_names).reshape(num_keys, num_names)
