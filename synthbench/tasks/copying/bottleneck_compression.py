"""The task bottleneck_compression."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, Tokens, task


@task
@dataclass(frozen=True)
class BottleneckCompression(Task):
    """Read symbols and a summary token; name every symbol, using only the output vector at the summary token.

    With ``num_symbols=8``, the summary token is 8::

        inputs    3 1 4 1 5 8
        targets   3 1 4 1 5 .

    Tests how much of a sequence one vector can hold. Each answer is computed only from the output vector at the last
    position and an encoding of the position asked about. So even a model with attention must compress the whole
    sequence into one vector.

    Source: Poli et al. (2024), their compression task. They also score the answer at the summary token itself.
    """

    name: ClassVar = "bottleneck_compression"
    source: ClassVar = "poli2024mad"
    readout: ClassVar = "bottleneck"
    length: ClassVar = 32
    min_length: ClassVar = 2  # one symbol and the summary token
    num_symbols: int = option(15, "number of symbols, the summary token not counted", low=2, high=65536)

    @property
    def vocab_size(self) -> int:
        """Number of token ids: the symbols and the summary token."""
        return self.num_symbols + 1

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform symbols and append the summary token."""
        inputs = rng.integers(self.num_symbols, size=(batch_size, length))
        targets = inputs.copy()
        inputs[:, -1] = self.num_symbols
        targets[:, -1] = IGNORE
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a uniform guess."""
        return Bound(1 / self.num_symbols)

    def ceiling(self, length: int) -> Bound:
        """Return 1: the summary token comes after all symbols. The limited capacity of a vector is ignored."""
        return Bound(1.0)

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of a rule that knows only the later half of the symbols, and otherwise answers 0."""
        is_late = np.arange(inputs.shape[1]) >= (inputs.shape[1] - 1) // 2
        return {"later half": np.where(is_late, inputs, 0)}
