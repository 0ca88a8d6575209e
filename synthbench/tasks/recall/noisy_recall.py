"""The task noisy_recall."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, task
from synthbench.tasks.recall._stream import Stream, sample_stream


@task
@dataclass(frozen=True)
class NoisyRecall(Stream):
    """Read keys, each followed by its value, with noise among them; at a repeated key, name its value.

    With ``vocabulary=8`` and ``num_noise=2``::

        inputs    2 6 9 8 0 4 2 6 8 8 0 4
        targets   . . . . . . 6 . . . 4 .

    Keys are 0 to 3, values are 4 to 7, and noise tokens are 8 and 9. Noise comes in pairs of tokens, each in the place
    of a key and its value. Each sequence draws new values for the keys. The last key repeats an earlier key.

    Tests associative recall among noise. A gate or a delta rule that sees the input can keep noise out of the state; a
    linear time-invariant mixer cannot.

    Source: Poli et al. (2024), MAD, following its code. Unlike in MAD's training, sequences are always new. Only
    repeated keys are scored, as in MAD's tests. MAD's sequences end with the last key; here, the value of this key
    follows if the length is even. Unlike in MAD, at least one pair before the last key is not noise.
    """

    name: ClassVar = "noisy_recall"
    source: ClassVar = "poli2024mad"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after *": "What followed the key before is its value, so copying it is the task.",
        }
    )
    length: ClassVar = 128
    # The ladder of in_context_recall with noise in half of the slots: a key comes twice on average.
    levels: ClassVar = tuple(
        {"load": keys, "length": 8 * keys, "keys_used": keys, "vocabulary": 32, "noise": 0.5}
        for keys in (2, 3, 4, 6, 8, 12, 16)
    )
    num_noise: int = option(16, "number of noise tokens", low=1, high=4096)
    noise: float = option(0.2, "probability of noise in place of a key and its value", low=0, high=1)

    @property
    def vocab_size(self) -> int:
        """Number of ids: keys, values and noise."""
        return self.vocabulary + self.num_noise

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a value for each key, then a stream of keys and noise; the last key repeats an earlier key."""
        return sample_stream(
            rng,
            batch_size,
            length,
            num_keys=self.num_keys,
            num_values=self.num_answers,
            keys_used=self.keys_used,
            noise=self.noise,
            num_noise=self.num_noise,
        )
