"""Streams of keys, each followed by its value, with noise among the pairs; a repeated key has the same value."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._draws import previous
from synthbench.tasks.base import IGNORE, Batch
from synthbench.tasks.recall._base import Recall


@dataclass(frozen=True)
class Stream(Recall):
    """Base class of tasks that show a stream of keys, each followed by its value, and ask about repeated keys."""

    load: ClassVar = "keys"
    vocabulary: int = option(16, "number of tokens without noise: values, and as many keys", low=4, high=4096)
    keys_used: int = option(
        0, "keys that occur, the first of the vocabulary's; 0: all of them", low=0, high=2048, is_addition=True
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or ``keys_used`` exceeds the number of keys.
        """
        super().__post_init__()
        self.check_at_most("keys_used", self.num_keys, "the number of keys in the vocabulary")

    @property
    def num_answers(self) -> int:
        """Number of token ids that are values: half of the vocabulary, rounded down."""
        return self.vocabulary // 2

    @property
    def num_keys(self) -> int:
        """Number of token ids that are keys: half of the vocabulary, rounded up."""
        return self.vocabulary - self.num_answers

    @property
    def min_length(self) -> int:
        """Number of tokens of a key, its value and the key again: 3."""
        return 3

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of one rule: the latest value read, whatever its key."""
        is_value = (self.num_keys <= inputs) & (inputs < self.vocabulary)
        latest = np.maximum.accumulate(np.where(is_value, np.arange(inputs.shape[1]), 0), axis=1)
        return {"latest_value": np.take_along_axis(inputs, latest, axis=1)}


def sample_stream(
    rng: np.random.Generator,
    batch_size: int,
    length: int,
    *,
    num_keys: int,
    num_values: int,
    keys_used: int = 0,
    noise: float = 0.0,
    num_noise: int = 1,
    only_last: bool = False,
) -> Batch:
    """Draw streams of keys, each followed by its value; at a repeated key, the value is the target.

    Token ids are, in this order, keys, values and noise. A sequence consists of slots of two tokens. A slot holds a
    uniform key and its value or, with probability ``noise``, two uniform noise tokens. The last slot holds a key drawn
    uniformly from the keys of earlier slots.

    Args:
        rng: Generator that draws everything.
        batch_size: Number of sequences.
        length: Number of tokens in each sequence; if odd, the last value is cut off.
        num_keys: Number of keys; each sequence draws a uniform value for each key.
        num_values: Number of values.
        keys_used: Number of keys that may occur, which are the keys with the smallest ids; 0 for all keys.
        noise: Probability of noise in a slot; the last slot and one random earlier slot never hold noise.
        num_noise: Number of token ids of noise.
        only_last: True to score only the key in the last slot.
    """
    rows, num_slots = np.arange(batch_size), (length + 1) // 2
    num_used = keys_used or num_keys
    keys = rng.integers(num_used, size=(batch_size, num_slots))
    is_noise = rng.random((batch_size, num_slots)) < noise
    is_noise[rows, rng.integers(num_slots - 1, size=batch_size)] = False
    is_noise[:, -1] = False
    is_new = ~is_noise & (previous(np.where(is_noise, num_keys, keys)) < 0)
    is_new[:, -1] = False
    # The largest of uniform numbers stands at a uniform place.
    keys[:, -1] = keys[rows, np.where(is_new, rng.random(is_new.shape), -1).argmax(axis=1)]
    values = np.take_along_axis(num_keys + rng.integers(num_values, size=(batch_size, num_used)), keys, axis=1)
    noise_tokens = num_keys + num_values + rng.integers(num_noise, size=(batch_size, num_slots, 2))
    slots = np.where(is_noise[:, :, None], noise_tokens, np.stack([keys, values], axis=2))
    is_scored = ~is_noise & ~is_new
    if only_last:
        is_scored[:, :-1] = False
    targets = np.full((batch_size, 2 * num_slots), IGNORE, dtype=np.int64)
    targets[:, 0::2] = np.where(is_scored, values, IGNORE)
    return Batch(slots.reshape(batch_size, -1)[:, :length], targets[:, :length])
