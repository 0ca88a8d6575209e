"""The task mqar."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import Batch, Task, task
from synthbench.tasks.recall._base import Dictionary
from synthbench.tasks.recall._queries import ask, look_up


@task
@dataclass(frozen=True)
class Mqar(Dictionary):
    """Read pairs of a key and a value; then, whenever a key comes again, name its value.

    With ``vocabulary=9`` and ``num_pairs=2``::

        inputs    3 5 1 7 8 8 1 8 3 8 8 8
        targets   . . . . . . 7 . 5 . . .

    Keys are 0 to 3, values 4 to 7, and the blank is 8. All keys in a sequence are different, and so are all values.
    Each key is asked once. The positions of queries follow a power law, which prefers early positions unless ``alpha``
    is 1. Keys draw positions in the order of the pairs, so the first key tends to be asked early.

    Tests associative recall of many pairs at once. Softmax attention keeps all pairs. A state of fixed size fails if
    there are too many pairs: linear attention fails first, then gated mechanisms, then the delta rule.

    Source: Arora et al. (2024), Zoology, following its code. Their code can also show pairs several times, and put
    blanks among the random tokens between queries.
    """

    name: ClassVar = "mqar"
    source: ClassVar = "arora2024zoology"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after *": "A key stands once before it is asked, so what followed it is its value: the task.",
        }
    )
    length: ClassVar = 128
    # Low levels draw from few keys and values: with 32 of each, gla and deltanet learned none in a run. All slots are
    # taken, so no blanks fill the length; positions are uniform, or the order of the pairs would show which is asked
    # next.
    levels: ClassVar = tuple(
        {
            "load": pairs,
            "length": 4 * pairs,
            "num_pairs": pairs,
            "vocabulary": 65,
            "tokens_used": min(2 * pairs, 32),
            "alpha": 1.0,
        }
        for pairs in (2, 3, 4, 6, 8, 12, 16, 24, 32)
    )
    # 16 % of the runs of the suite climb, now core, solve the last level of 32 pairs.
    extended_levels: ClassVar = tuple(
        {
            "load": pairs,
            "length": 4 * pairs,
            "num_pairs": pairs,
            "vocabulary": 129,
            "tokens_used": min(max(pairs, 32), 2 * pairs),
            "alpha": 1.0,
        }
        for pairs in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    )
    load: ClassVar = "pairs"
    num_pairs: int = option(16, "number of pairs, each of which is asked once", low=1, high=4096)
    alpha: float = option(0.01, "places have probabilities in proportion to place ** (alpha - 1)", low=0, high=1)
    filler: Literal["blank", "noise"] = option("blank", "what stands between the queries: blanks, or any key or value")

    def __post_init__(self) -> None:
        """Check each option, and that the options fit together.

        Raises:
            UsageError: If an option lies outside its range, or there are fewer keys than pairs.
        """
        super().__post_init__()
        self.check_at_most("num_pairs", self.num_keys_used, "the number of keys that are used")

    @property
    def min_length(self) -> int:
        """Number of tokens: two for each pair and two for each query."""
        return 4 * self.num_pairs

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw distinct keys and distinct values, ask for each key, and fill the rest with blanks or random tokens."""
        blank, end = self.vocabulary - 1, 2 * self.num_pairs
        keys = distinct(rng, batch_size, self.num_pairs, self.num_keys_used)
        values = self.num_key_tokens + distinct(rng, batch_size, self.num_pairs, self.num_answers)
        inputs = np.full((batch_size, length), blank)
        if self.filler == "noise":
            inputs[:, end:] = rng.integers(blank, size=(batch_size, length - end))
        inputs[:, 0:end:2] = keys
        inputs[:, 1:end:2] = values
        targets = ask(rng, inputs, keys[:, :, None], values, end, self.alpha)
        return Batch(inputs, targets)

    def stretched(self, length: int, factor: int) -> tuple[Task, int]:
        """Return the task and the length, in tokens, for tests that are ``factor`` times as long as training.

        If there are enough keys, sequences also have ``factor`` times as many pairs.
        """
        pairs = factor * self.num_pairs
        return (replace(self, num_pairs=pairs) if pairs <= self.num_keys_used else self), factor * length

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the answers of two rules: the last pair's value, or the n-th pair's value at the n-th query."""
        end = 2 * self.num_pairs
        keys, values = inputs[:, 0:end:2], inputs[:, 1:end:2]
        is_query = look_up(keys, np.ones_like(keys), inputs, self.vocabulary)
        is_query[:, :end] = 0
        query = np.clip(is_query.cumsum(axis=1) - 1, 0, self.num_pairs - 1)
        return {
            "last_value": np.broadcast_to(values[:, -1:], inputs.shape),
            "same_order": np.take_along_axis(values, query, axis=1),
        }
