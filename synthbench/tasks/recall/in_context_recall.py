"""The task in_context_recall."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int

from synthbench.knobs import Value, knob
from synthbench.tasks.base import Batch, task
from synthbench.tasks.recall._base import Recall
from synthbench.tasks.recall._stream import latest_value, sample_stream


@task
@dataclass(frozen=True)
class InContextRecall(Recall):
    """Read a stream of keys, each followed by its value; at a key that was there before, name its value.

    With ``vocabulary=8``::

        inputs    2 6 0 4 2 6 1 4 0 4
        targets   . . . . 6 . . . 4 .

    Keys are 0 to 3, and values 4 to 7. What a key's value is changes from sequence to sequence. The last key was there
    before.

    Tests associative recall with few keys that come often, so that the answer stands nearby: most mechanisms do well at
    the small size, and fall behind as keys and length grow.

    Source: Poli et al. (2024), MAD, as coded. There training asks for every next token, in a fixed set of sequences;
    ours scores what is tested there, or the last key alone.
    """

    name: ClassVar = "in_context_recall"
    source: ClassVar = "poli2024mad"
    length: ClassVar = 128
    sizes: ClassVar[Mapping[str, Mapping[str, Value]]] = {
        "tiny": {"length": 32, "vocabulary": 8},
        "small": {"length": length},
        "hard": {"length": 512, "vocabulary": 128},
    }
    vocabulary: int = knob(16, "number of tokens: values, and as many keys", low=4, high=4096)
    scored: Literal["repeats", "probe"] = knob(
        "repeats", "where values are asked: at all keys seen before, or the last"
    )

    @property
    def num_answers(self) -> int:
        """Half of the vocabulary are values."""
        return self.vocabulary // 2

    @property
    def num_keys(self) -> int:
        """The other half are keys."""
        return self.vocabulary - self.num_answers

    @property
    def vocab_size(self) -> int:
        """As many as the knob says."""
        return self.vocabulary

    @property
    def min_length(self) -> int:
        """One pair and its key."""
        return 3

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a value for each key, then keys; the last is one of those before it."""
        self.check_length(length)
        return sample_stream(
            rng,
            batch_size,
            length,
            num_keys=self.num_keys,
            num_values=self.num_answers,
            only_last=self.scored == "probe",
        )

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """The latest value, whatever its key."""
        return {"latest_value": latest_value(inputs, self.num_keys, self.num_answers)}
