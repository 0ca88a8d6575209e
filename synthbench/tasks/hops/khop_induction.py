"""The task khop_induction."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks.base import IGNORE, Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class KhopInduction(Task):
    """Hop from each token to the token after its previous occurrence, ``num_hops`` times; name the token reached.

    With ``num_symbols=4`` and ``num_hops=2``, the answer 4 means that some hop finds no earlier occurrence::

        inputs    2 3 0 1 0 2 1 0
        targets   4 4 4 4 4 4 1 3

    At the last 0, the first hop leads back to the 2 that followed the previous 0. The second hop leads from that 2 to
    the 3 that followed the previous 2.

    Tests the composition of induction heads: attention needs a depth that grows with the logarithm of ``num_hops``. A
    recurrent state must keep the results of 1, 2, ... hops from every symbol.

    Neighbouring tokens always differ, so a model that makes one hop too few never reaches the right symbol. Longer test
    sequences ask for as many hops as in training. There is one exception, for models trained on several levels of
    difficulty: if the task has a level of the tested length, the test uses that level's number of hops.

    Source: Sanford, Hsu & Telgarsky (2024), following their code. In the paper, the number of hops varies, and the
    first token states it. Here, the inputs show this number only with ``is_marked=true``. Then each sequence begins
    with one mark per hop; in the example, the mark would be the token 4.
    """

    name: ClassVar = "khop_induction"
    source: ClassVar = "sanford2024transformers"
    length: ClassVar = 128
    # A hop leads back by three tokens on average, so in the second half of a sequence most answers are symbols.
    levels: ClassVar = tuple(
        {
            "load": num_hops,
            "length": 8 * num_hops,
            "first_new": 4 * num_hops,
            "num_symbols": 4,
            "num_hops": num_hops,
            "is_marked": True,
        }
        for num_hops in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    )
    load: ClassVar = "hops"
    num_symbols: int = option(8, "number of symbols", low=3, high=4096)
    num_hops: int = option(3, "number of hops", low=1, high=64)
    is_marked: bool = option(
        default=False,
        meaning="whether sequences begin with a mark for each hop: one model can then learn several numbers of hops",
        is_addition=True,
    )

    @property
    def vocab_size(self) -> int:
        """Number of token ids: one per symbol, and one more, which marks a hop and is the answer "no occurrence"."""
        return self.num_symbols + 1

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest sequence that may have an answer.

        In this sequence, two symbols alternate, so each hop leads back by one token.
        """
        return self._num_marks + self.num_hops + 2

    @property
    def _num_marks(self) -> int:
        return self.num_hops if self.is_marked else 0

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw each token uniformly among the symbols that differ from the previous token."""
        steps = rng.integers(1, self.num_symbols, size=(batch_size, length - self._num_marks))
        steps[:, 0] = rng.integers(self.num_symbols, size=batch_size)
        symbols = steps.cumsum(axis=1) % self.num_symbols
        *_, answers = self._found(symbols)
        return Batch(self._after_marks(symbols, self.num_symbols), self._after_marks(answers, IGNORE))

    def floor(self, length: int) -> Bound:
        """Return the accuracy of a fixed guess at each position: "no answer" or a symbol, whichever is likelier."""
        length -= self._num_marks
        chance = 1 / (self.num_symbols - 1)
        distance = np.concatenate([[0.0], chance * (1 - chance) ** np.arange(length)])
        total = np.ones(1)
        for _ in range(self.num_hops):
            total = np.convolve(total, distance)[:length]
        # The search for the first match starts one token back, and the last match is at position 0 or later.
        has_answer = np.concatenate([[0.0], total.cumsum()])[:length]
        return Bound(float(np.maximum(1 - has_answer, has_answer / self.num_symbols).mean()))

    def ceiling(self, length: int) -> Bound:
        """Return 1: every hop leads back to a token that has been read."""
        return Bound(1.0)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """Return the answers of rules that make too few hops: 0, 1, ... up to ``num_hops - 1``."""
        *shorter, _ = self._found(inputs[:, self._num_marks :])
        return {f"{num_hops}_hops": self._after_marks(found, 0) for num_hops, found in enumerate(shorter)}

    def _after_marks(self, rows: Int[np.ndarray, "batch _"], token: int) -> Int[np.ndarray, "batch length"]:
        """Put ``token`` at the beginning of each row, once for each mark (a token that stands for one hop)."""
        return np.pad(rows, ((0, 0), (self._num_marks, 0)), constant_values=token)

    def _found(self, inputs: Int[np.ndarray, "batch length"]) -> Iterator[Int[np.ndarray, "batch length"]]:
        """Yield the tokens found from each position: first by 0 hops, then by 1 hop, and so on up to ``num_hops``."""
        batch_size, length = inputs.shape
        # Sort positions by token, earliest first; 16-bit integers allow a radix sort.
        order = np.argsort(inputs.astype(np.uint16), axis=1, kind="stable")
        is_repeat = np.diff(np.take_along_axis(inputs, order, axis=1), axis=1) == 0
        # The position after the last stands for "none"; hops from there stay there.
        landing = np.full((batch_size, length + 1), length)
        np.put_along_axis(landing, order[:, 1:], np.where(is_repeat, order[:, :-1] + 1, length), axis=1)
        tokens = np.append(inputs, np.full((batch_size, 1), self.num_symbols), axis=1)
        positions = np.tile(np.arange(length), (batch_size, 1))
        yield inputs.copy()
        for _ in range(self.num_hops):
            positions = np.take_along_axis(landing, positions, axis=1)
            yield np.take_along_axis(tokens, positions, axis=1)
