"""The task composite_recall."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.knobs import Value, knob
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import Batch, Task, task
from synthbench.tasks.recall._base import Recall
from synthbench.tasks.recall._queries import ask, look_up


@task
@dataclass(frozen=True)
class CompositeRecall(Recall):
    """Read keys of two tokens with a value each; then, whenever a key comes again, name its value at its second token.

    With ``grid=3``, ``num_values=4`` and ``num_pairs=3``::

        inputs    0 1 4 0 2 6 1 0 3 0 2 7 1 0 7 0 1 7
        targets   . . . . . . . . . . 6 . . 3 . . 4 .

    The tokens of keys are 0 to 2, values are 3 to 6, and the blank is 7. A key is an ordered pair, a cell of a square
    grid, so that neither of its tokens tells its value. Each key is asked once, at a random place.

    Tests recall by a conjunction: two layers, or a short convolution below one, can bind the tokens of a key first.

    Source: Arora et al. (2024), Zoology, the variant of MQAR with composite keys in its code. There first and second
    tokens come from separate sets, all cells are in use, places follow a power law, and values are distinct.
    """

    name: ClassVar = "composite_recall"
    source: ClassVar = "arora2024zoology"
    length: ClassVar = 128
    sizes: ClassVar[Mapping[str, Mapping[str, Value]]] = {
        "tiny": {"length": 24, "num_pairs": 4, "grid": 4, "num_values": 4},
        "small": {"length": length},
        "hard": {"length": 512, "num_pairs": 64, "grid": 16, "num_values": 256},
    }
    num_pairs: int = knob(16, "number of keys in a sequence, each of which is asked once", low=1, high=4096)
    grid: int = knob(8, "number of tokens that keys are made of", low=2, high=256)
    num_values: int = knob(64, "number of values", low=2, high=65536)

    def __post_init__(self) -> None:
        """Check the knobs, also against each other.

        Raises:
            UsageError: If a knob lies outside its range, or there are fewer cells than keys.
        """
        super().__post_init__()
        self.check_at_most("num_pairs", self.grid**2, "the number of cells of the grid")

    @property
    def num_answers(self) -> int:
        """Any value."""
        return self.num_values

    @property
    def vocab_size(self) -> int:
        """The tokens of keys, the values and the blank."""
        return self.grid + self.num_values + 1

    @property
    def min_length(self) -> int:
        """Three tokens for each pair and three for each query."""
        return 6 * self.num_pairs

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw distinct cells of the grid and a value for each, and ask for each of them."""
        self.check_length(length)
        end, shape = 3 * self.num_pairs, (batch_size, self.num_pairs)
        keys = np.stack(np.divmod(distinct(rng, *shape, self.grid**2), self.grid), axis=2)
        values = self.grid + rng.integers(self.num_values, size=shape)
        inputs = np.full((batch_size, length), self.vocab_size - 1)
        inputs[:, 0:end:3] = keys[:, :, 0]
        inputs[:, 1:end:3] = keys[:, :, 1]
        inputs[:, 2:end:3] = values
        targets = ask(rng, inputs, keys, values, end)
        return Batch(inputs, targets)

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """``factor`` times the pairs, on the same grid, in as many times the length."""
        return replace(self, num_pairs=factor * self.num_pairs), factor * length

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """The value of the last key with the same first, or the same second, token."""
        end = 3 * self.num_pairs
        first, second, values = inputs[:, 0:end:3], inputs[:, 1:end:3], inputs[:, 2:end:3]
        before = np.roll(inputs, 1, axis=1)  # the first token of a key, seen from the second
        return {
            "same_first": look_up(first, values, before, self.vocab_size),
            "same_second": look_up(second, values, inputs, self.vocab_size),
        }
