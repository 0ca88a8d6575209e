"""The task noisy_copy."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class NoisyCopy(Task):
    """In the first half, name the token just read; in the second half, where noise replaces some tokens, answer 0.

    With ``vocabulary=8``, noise is 7::

        inputs    3 1 4 1 7 0 6 7
        targets   3 1 4 1 0 0 0 0

    Tests whether a mechanism copies the current token and tells the halves apart. Noise occurs only where the
    answer is 0 anyway.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as in the published code.
    """

    name: ClassVar = "noisy_copy"
    source: ClassVar = "slay2026"
    length: ClassVar = 64
    min_length: ClassVar = 2  # one position in each half
    not_tested: ClassVar = "Robustness: noise occurs only where the answer is 0 whatever was read."
    vocabulary: int = option(32, "number of tokens, noise among them", low=2, high=65536)
    noise_rate: float = option(0.3, "probability that noise covers a token of the second half", low=0, high=1)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens, and replace some tokens of the second half by noise."""
        half, noise = length // 2, self.vocabulary - 1
        inputs = rng.integers(noise, size=(batch_size, length))
        targets = inputs.copy()
        targets[:, half:] = 0
        inputs[:, half:][rng.random((batch_size, length - half)) < self.noise_rate] = noise
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of guessing uniformly in the first half and answering 0 throughout the second half."""
        half = length // 2
        return Bound((half / (self.vocabulary - 1) + length - half) / length)
