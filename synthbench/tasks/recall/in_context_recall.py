"""The task in_context_recall."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, task
from synthbench.tasks.recall._stream import Stream, sample_stream


@task
@dataclass(frozen=True)
class InContextRecall(Stream):
    """Read a stream of keys, each followed by its value; at a repeated key, name its value.

    With ``vocabulary=8``::

        inputs    2 6 0 4 2 6 1 4 0 4
        targets   . . . . 6 . . . 4 .

    Keys are 0 to 3, values 4 to 7. Each sequence draws new values for the keys. The last key repeats an earlier key.

    Tests associative recall with few keys that occur often, so the answer is mostly nearby. Most mechanisms do well
    with few keys but fall behind as the number of keys and the length grow.

    Source: Poli et al. (2024), MAD, following its code. Unlike in MAD's training, sequences are always new. Only
    repeated keys are scored, as in MAD's tests. With ``scored=probe``, only the last key is scored. MAD's sequences end
    with the last key; here, the value of this key follows if the length is even.
    """

    name: ClassVar = "in_context_recall"
    source: ClassVar = "poli2024mad"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after *": "What followed the key before is its value, so copying it is the task.",
        }
    )
    length: ClassVar = 128
    # A key comes four times on average. More than 16 keys would need more values, which recurrent mechanisms are slow
    # to learn.
    levels: ClassVar = tuple(
        {"load": keys, "length": 8 * keys, "keys_used": keys, "vocabulary": 32} for keys in (2, 3, 4, 6, 8, 12, 16)
    )
    # 22 % of the runs of the suite climb, now core, solve the last level of 16 keys; with 2 keys the last tokens give
    # most values. Up to 256 tokens each key comes four times on average, beyond that less often.
    extended_levels: ClassVar = tuple(
        {
            "load": keys,
            "length": min(8 * keys, 256),
            "keys_used": keys,
            "values_used": 16,
            "vocabulary": 256,
        }
        for keys in (3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    )
    scored: Literal["repeats", "probe"] = option(
        "repeats", "where values are asked: at all keys seen before, or the last"
    )
    values_used: int = option(
        0, "values that occur, the first of the vocabulary's; 0: all of them", low=0, high=2048, is_addition=True
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or ``keys_used`` or ``values_used`` is too large.
        """
        super().__post_init__()
        self.check_at_most("values_used", self.vocabulary // 2, "the number of values in the vocabulary")

    @property
    def num_answers(self) -> int:
        """Number of values that occur: ``values_used``, where 0 stands for half of the vocabulary, rounded down."""
        return self.values_used or self.vocabulary // 2

    @property
    def num_keys(self) -> int:
        """Number of token ids that are keys: half of the vocabulary, rounded up."""
        return self.vocabulary - self.vocabulary // 2

    @property
    def vocab_size(self) -> int:
        """Number of ids: the option ``vocabulary``."""
        return self.vocabulary

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw a value for each key, then a stream of keys; the last key repeats an earlier key."""
        return sample_stream(
            rng,
            batch_size,
            length,
            num_keys=self.num_keys,
            num_values=self.num_answers,
            keys_used=self.keys_used,
            only_last=self.scored == "probe",
        )
