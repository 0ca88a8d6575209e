"""The task memorization."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, task
from synthbench.tasks.recall._base import Recall

PHILOX_KEY = 0x6D656D6F
"""Fixed seed from which the value of each key is drawn."""


@task
@dataclass(frozen=True)
class Memorization(Recall):
    """At each blank, name the value of the key before the blank; keys have the same values in all sequences.

    With ``num_keys=4``::

        inputs    2 8 0 8 3 8 2 8
        targets   . 4 . 7 . 6 . 4

    Keys are 0 to 3, values 4 to 7, and the blank is 8. Each value belongs to one key.

    The task is a control that hardly tests the mixing of positions: the model needs only the previous token and the
    value learned for this token. The score should depend mostly on the capacity of the channel mixer (such as an MLP).

    Source: Poli et al. (2024), MAD, section 3.1 and code. MAD repeats a fixed set of 256 training sequences, with 127
    keys and 128 values; here, sequences are always new.
    """

    name: ClassVar = "memorization"
    source: ClassVar = "poli2024mad"
    length: ClassVar = 32
    not_tested: ClassVar = (
        "Mixing of positions: the answer depends on the previous token alone, and parameters hold it, not the context."
    )
    num_keys: int = option(128, "number of keys, and of values", low=2, high=32768)

    @property
    def num_answers(self) -> int:
        """Number of values: one for each key."""
        return self.num_keys

    @property
    def vocab_size(self) -> int:
        """Number of ids: keys, values and the blank."""
        return 2 * self.num_keys + 1

    @property
    def min_length(self) -> int:
        """Number of tokens of a key and a blank: 2."""
        return 2

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform keys, each followed by a blank."""
        inputs = np.full((batch_size, length), 2 * self.num_keys)
        targets = np.full_like(inputs, IGNORE)
        keys = rng.integers(self.num_keys, size=(batch_size, (length + 1) // 2))
        inputs[:, 0::2] = keys
        targets[:, 1::2] = _values(self.num_keys)[keys[:, : length // 2]]
        return Batch(inputs, targets)


@cache
def _values(num_keys: int) -> Int[np.ndarray, " keys"]:
    """Draw the token id of each key's value, the same for all sequences."""
    return num_keys + np.random.Generator(np.random.Philox(key=PHILOX_KEY)).permutation(num_keys)
