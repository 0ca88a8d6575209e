"""The task overwrite_recall."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.knobs import Value, knob
from synthbench.tasks._draws import distinct, previous
from synthbench.tasks.base import Batch, Task, task
from synthbench.tasks.recall._base import Recall
from synthbench.tasks.recall._queries import ask, look_up


@task
@dataclass(frozen=True)
class OverwriteRecall(Recall):
    """Read pairs of a key and a value, some keys twice; then, whenever a key comes again, name its latest value.

    With ``vocabulary=9``, ``num_keys=2`` and ``num_rewritten=1``::

        inputs    3 5 1 7 3 6 1 8 8 8 3 8
        targets   . . . . . . 7 . . . 6 .

    Keys are 0 to 3, values 4 to 7, and the blank is 8. The second value of a key differs from the first. Pairs stand in
    random order, and each key is asked once, at a random place.

    Tests whether a value is replaced. Linear attention adds the second value to the first; the delta rule erases the
    first; a decay prefers what is recent, at the cost of keys that were written once and long ago.

    Source: Arora et al. (2024), Zoology, the variant of MQAR with updates in its code. There all second values come
    after all first ones, places follow a power law, and first values are distinct.
    """

    name: ClassVar = "overwrite_recall"
    source: ClassVar = "arora2024zoology"
    length: ClassVar = 64
    sizes: ClassVar[Mapping[str, Mapping[str, Value]]] = {
        "tiny": {"length": 32, "num_keys": 4, "num_rewritten": 2, "vocabulary": 33},
        "small": {"length": length},
        "hard": {"length": 256, "num_keys": 32, "num_rewritten": 16, "vocabulary": 512},
    }
    # Half of the keys are written twice, rounded up: 5 tokens a key, which nearly fill the lengths that tasks share.
    # The vocabulary has 24 keys, as many values and the blank: more take longer to learn than a run lasts.
    rungs: ClassVar = tuple(
        {"load": keys, "length": length, "num_keys": keys, "num_rewritten": (keys + 1) // 2, "vocabulary": 49}
        for keys, length in ((2, 12), (3, 16), (4, 24), (6, 32), (8, 48), (12, 64), (16, 96), (24, 128))
    )
    load: ClassVar = "keys"
    num_keys: int = knob(8, "number of keys in a sequence, each of which is asked once", low=1, high=4096)
    num_rewritten: int = knob(4, "number of keys that are written twice", low=0, high=4096)
    vocabulary: int = knob(128, "number of tokens: values, as many keys, and the blank", low=4, high=65536)

    def __post_init__(self) -> None:
        """Check the knobs, also against each other.

        Raises:
            UsageError: If a knob lies outside its range, or there are too few keys.
        """
        super().__post_init__()
        self.check_at_most("num_keys", self.num_key_tokens, "the number of keys in the vocabulary")
        self.check_at_most("num_rewritten", self.num_keys, "the number of keys in a sequence")

    @property
    def num_answers(self) -> int:
        """Half of the vocabulary are values."""
        return self.vocabulary // 2

    @property
    def num_key_tokens(self) -> int:
        """The other half, without the blank, are keys."""
        return self.vocabulary - 1 - self.num_answers

    @property
    def num_pairs(self) -> int:
        """Number of pairs to be read."""
        return self.num_keys + self.num_rewritten

    @property
    def vocab_size(self) -> int:
        """As many as the knob says."""
        return self.vocabulary

    @property
    def min_length(self) -> int:
        """Two tokens for each pair and two for each query."""
        return 2 * self.num_pairs + 2 * self.num_keys

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw distinct keys, a value for each, another for some; shuffle the pairs, and ask for each key."""
        self.check_length(length)
        end, shape = 2 * self.num_pairs, (batch_size, self.num_keys)
        keys = distinct(rng, *shape, self.num_key_tokens)
        first = rng.integers(self.num_answers, size=shape)
        # Keys are in random order, so that those to be written twice may as well be the first ones.
        change = rng.integers(1, self.num_answers, size=shape) * (np.arange(self.num_keys) < self.num_rewritten)
        latest = (first + change) % self.num_answers
        pairs = np.concatenate([np.arange(self.num_keys), np.arange(self.num_rewritten)])
        order = rng.permuted(np.tile(pairs, (batch_size, 1)), axis=1)
        in_order = [np.take_along_axis(values, order, axis=1) for values in (first, latest)]
        written = np.where(previous(order) < 0, *in_order)
        inputs = np.full((batch_size, length), self.vocabulary - 1)
        inputs[:, 0:end:2] = np.take_along_axis(keys, order, axis=1)
        inputs[:, 1:end:2] = self.num_key_tokens + written
        targets = ask(rng, inputs, keys[:, :, None], self.num_key_tokens + latest, end)
        return Batch(inputs, targets)

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """``factor`` times the keys, and as many more of them written twice, in as many times the length."""
        harder = replace(self, num_keys=factor * self.num_keys, num_rewritten=factor * self.num_rewritten)
        return harder, factor * length

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """The first value of the key, right for keys written once, and the value read last, whatever its key."""
        end = 2 * self.num_pairs
        keys, values = inputs[:, 0:end:2], inputs[:, 1:end:2]
        return {
            "first_value": look_up(keys[:, ::-1], values[:, ::-1], inputs, self.vocabulary),
            "last_value": np.broadcast_to(values[:, -1:], inputs.shape),
        }
