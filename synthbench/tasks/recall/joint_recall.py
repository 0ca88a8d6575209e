"""The task joint_recall."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks._targets import score_at
from synthbench.tasks.base import Batch, Task, task
from synthbench.tasks.recall._base import Recall


@task
@dataclass(frozen=True)
class JointRecall(Recall):
    """Read contexts in which the same keys have different values; name the value of a given key in a given context.

    In this example, contexts are 0 and 1, keys 2 and 3, values 4 to 7, and the padding is 8.
    With ``num_contexts=2``, ``num_keys=2``, ``context_ids=2``, ``key_ids=2`` and ``num_values=4``::

        inputs    1 3 4 2 7 0 2 5 3 6 0 3 1 2 8
        targets   . . . . . . . . . . . 6 . 7 .

    Tests recall by a context and a key together. Each context begins with one token that names it; all its keys and
    values follow, so most values are far from this token. In the task ``composite_recall``, by contrast, a key consists
    of two tokens, and both stand right before the value.

    The values of a key differ between contexts, so a random value of the key is right with probability
    ``1 / num_contexts``. Each question is about a random key and context. Questions fill the rest of the sequence.

    Source: after Zhan et al. (2025), multi-query joint recall; the layout is ours.
    """

    name: ClassVar = "joint_recall"
    source: ClassVar = "zhan2025joint"
    length: ClassVar = 128
    # Low levels draw from few contexts, keys and values, as many take longer to learn than a run lasts.
    levels: ClassVar = tuple(
        {
            "load": num_contexts * num_keys,
            "length": length,
            "num_contexts": num_contexts,
            "num_keys": num_keys,
            "context_ids": 16,
            "key_ids": 16,
            "num_values": 32,
            "tokens_used": max(num_contexts, num_keys, 4),
        }
        for num_contexts, num_keys, length in (
            (2, 2, 16),
            (2, 3, 24),
            (2, 4, 32),
            (3, 4, 48),
            (4, 4, 64),
            (4, 6, 96),
            (6, 6, 128),
            (6, 8, 192),
            (8, 8, 256),
            (8, 12, 384),
            (12, 12, 512),
            (12, 16, 768),
            (16, 16, 1024),
        )
    )
    load: ClassVar = "contexts × keys"
    num_contexts: int = option(4, "number of contexts in a sequence", low=2, high=1024)
    num_keys: int = option(6, "number of keys, the same in all contexts", low=1, high=1024)
    context_ids: int = option(8, "number of contexts to draw from", low=2, high=1024)
    key_ids: int = option(32, "number of keys to draw from", low=1, high=1024)
    num_values: int = option(16, "number of values", low=2, high=4096)
    tokens_used: int = option(
        0, "number of contexts, of keys and of values to draw from, the first ones; 0 for all", low=0, high=1024
    )

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or there are too few contexts, keys or values to draw from.
        """
        super().__post_init__()
        for ids in ("context_ids", "key_ids", "num_values"):
            self.check_at_most("tokens_used", getattr(self, ids), f"as there are {ids}")
        self.check_at_most("num_contexts", self.tokens_used or self.context_ids, "the number of contexts to draw from")
        self.check_at_most("num_keys", self.tokens_used or self.key_ids, "the number of keys to draw from")
        self.check_at_most("num_contexts", self.num_answers, "the number of values to draw from, all of one key's")

    @property
    def num_answers(self) -> int:
        """Number of values that occur: ``tokens_used``, or ``num_values`` if ``tokens_used`` is 0."""
        return self.tokens_used or self.num_values

    @property
    def vocab_size(self) -> int:
        """Number of ids: contexts, keys, values and the padding."""
        return self.context_ids + self.key_ids + self.num_values + 1

    @property
    def min_length(self) -> int:
        """Number of tokens of all contexts with their keys and values, and of one question."""
        return self._num_read + 2

    @property
    def _num_read(self) -> int:
        return self.num_contexts * (1 + 2 * self.num_keys)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw contexts, keys and the value of each key in each context; ask for random keys in random contexts."""
        shape = (batch_size, self.num_contexts, self.num_keys)
        contexts = distinct(rng, batch_size, self.num_contexts, self.tokens_used or self.context_ids)
        keys = self.context_ids + distinct(rng, batch_size, self.num_keys, self.tokens_used or self.key_ids)
        values = distinct(rng, batch_size * self.num_keys, self.num_contexts, self.num_answers)
        values = self.context_ids + self.key_ids + values.reshape(batch_size, self.num_keys, -1).swapaxes(1, 2)
        order = rng.permuted(np.broadcast_to(np.arange(self.num_keys), shape), axis=2)
        read = np.empty((batch_size, self.num_contexts, 1 + 2 * self.num_keys), dtype=np.int64)
        read[:, :, 0] = contexts
        read[:, :, 1::2] = np.take_along_axis(np.broadcast_to(keys[:, None], shape), order, axis=2)
        read[:, :, 2::2] = np.take_along_axis(values, order, axis=2)
        num_questions = (length - self._num_read) // 2
        asked = rng.integers(self.num_contexts * self.num_keys, size=(batch_size, num_questions))
        context, key = np.divmod(asked, self.num_keys)
        inputs = np.full((batch_size, length), self.vocab_size - 1)
        inputs[:, : self._num_read] = read.reshape(batch_size, -1)
        questions = inputs[:, self._num_read : self._num_read + 2 * num_questions]
        questions[:, 0::2] = np.take_along_axis(contexts, context, axis=1)
        questions[:, 1::2] = np.take_along_axis(keys, key, axis=1)
        answers = np.take_along_axis(values.reshape(batch_size, -1), asked, axis=1)
        positions = self._num_read + 1 + 2 * np.arange(num_questions)
        return Batch(inputs, score_at(answers, np.broadcast_to(positions, answers.shape), length))

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Return the task and length for longer tests; ``factor`` multiplies the length and the keys per context."""
        return replace(self, num_keys=factor * self.num_keys), factor * length

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the guesses of three shortcut rules, which use only the key or only the context.

        One rule names any value of the key, one its latest value, and one any value of the context. If a rule may name
        any value, it chooses each about equally often.
        """
        batch_size, length = inputs.shape
        read = inputs[:, : self._num_read].reshape(batch_size, self.num_contexts, 1 + 2 * self.num_keys)
        order = np.argsort(read[:, :, 1::2], axis=2)
        keys, values = (np.take_along_axis(read[:, :, part::2], order, axis=2) for part in (1, 2))
        rows = np.arange(batch_size)[:, None]
        places = np.zeros((2, batch_size, self.vocab_size), dtype=np.int64)
        places[0, rows, read[:, :, 0]] = np.arange(self.num_contexts)
        places[1, rows, keys[:, 0]] = np.arange(self.num_keys)
        context, key = places[0, rows, np.roll(inputs, 1, axis=1)], places[1, rows, inputs]
        turn = rows + np.arange(length)
        return {
            "any value of the key": values[rows, turn % self.num_contexts, key],
            "latest value of the key": values[rows, self.num_contexts - 1, key],
            "any value of the context": values[rows, context, turn % self.num_keys],
        }
