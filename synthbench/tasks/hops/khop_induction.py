"""The task khop_induction."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.knobs import knob
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class KhopInduction(Task):
    """From each token hop to what followed its latest earlier occurrence, several times; name the token found there.

    With ``num_symbols=4`` and ``num_hops=2``, 4 says that there is no earlier occurrence to hop from::

        inputs    2 3 0 1 0 2 1 0
        targets   4 4 4 4 4 4 1 3

    At the last 0, the first hop leads to the 2 after the 0 before it, and the second to the 3 after the 2 before that.

    Tests the composition of induction heads: attention needs a depth that grows with the logarithm of ``num_hops``, and
    a state that is passed along must keep what every hop found, for every symbol.

    No token follows itself, so that the last hop always changes the token. Out of range only the length grows, since
    the number of hops is not shown.

    Source: Sanford, Hsu & Telgarsky (2024), as coded. There the number of hops varies, and a first token gives it.
    """

    name: ClassVar = "khop_induction"
    source: ClassVar = "sanford2024transformers"
    length: ClassVar = 128
    sizes: ClassVar = {
        "tiny": {"length": 32, "num_symbols": 4, "num_hops": 2},
        "small": {"length": length},
        "hard": {"length": 256, "num_hops": 8},
    }
    num_symbols: int = knob(8, "number of symbols", low=3, high=4096)
    num_hops: int = knob(3, "number of hops", low=1, high=64)

    @property
    def vocab_size(self) -> int:
        """The symbols, and the answer that there is none."""
        return self.num_symbols + 1

    @property
    def min_length(self) -> int:
        """The first position that may have an answer: with two symbols in turn, each hop leads back by one."""
        return self.num_hops + 2

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw tokens that are uniform among those that differ from the token before."""
        self.check_length(length)
        steps = rng.integers(1, self.num_symbols, size=(batch_size, length))
        steps[:, 0] = rng.integers(self.num_symbols, size=batch_size)
        inputs = steps.cumsum(axis=1) % self.num_symbols
        *_, targets = self._found(inputs)
        return Batch(inputs, targets)

    def floor(self, length: int) -> Bound:
        """At each position either the answer that there is none, or any symbol.

        Read backwards from a token to its earlier occurrence, each token is the one that is sought with probability
        ``1 / (num_symbols - 1)``, for it differs from its neighbour. The next hop goes on from that occurrence, whose
        successor is not the token that it holds: so the distances are independent and geometric.
        """
        self.check_length(length)
        chance = 1 / (self.num_symbols - 1)
        distance = np.concatenate([[0.0], chance * (1 - chance) ** np.arange(length)])
        total = np.ones(1)
        for _ in range(self.num_hops):
            total = np.convolve(total, distance)[:length]
        # The first hop looks back from the token before, and the last occurrence is no earlier than position 0.
        has_answer = np.concatenate([[0.0], total.cumsum()])[:length]
        return Bound(float(np.maximum(1 - has_answer, has_answer / self.num_symbols).mean()))

    def ceiling(self, length: int) -> Bound:
        """Every hop leads back to what has been read."""
        self.check_length(length)
        return Bound(1.0)

    def shortcuts(self, inputs: Int[np.ndarray, "batch length"]) -> dict[str, Int[np.ndarray, "batch length"]]:
        """What smaller numbers of hops find, from none on."""
        *shorter, _ = self._found(inputs)
        return {f"{num_hops}_hops": found for num_hops, found in enumerate(shorter)}

    def _found(self, inputs: Int[np.ndarray, "batch length"]) -> Iterator[Int[np.ndarray, "batch length"]]:
        """What 0, 1, ... ``num_hops`` hops find."""
        batch_size, length = inputs.shape
        # Positions by token, earliest first: in 16 bits they are sorted by radix.
        order = np.argsort(inputs.astype(np.uint16), axis=1, kind="stable")
        is_repeat = np.diff(np.take_along_axis(inputs, order, axis=1), axis=1) == 0
        # Behind the last position there is nothing, from where hops lead to nothing.
        landing = np.full((batch_size, length + 1), length)
        np.put_along_axis(landing, order[:, 1:], np.where(is_repeat, order[:, :-1] + 1, length), axis=1)
        tokens = np.append(inputs, np.full((batch_size, 1), self.num_symbols), axis=1)
        positions = np.tile(np.arange(length), (batch_size, 1))
        yield inputs.copy()
        for _ in range(self.num_hops):
            positions = np.take_along_axis(landing, positions, axis=1)
            yield np.take_along_axis(tokens, positions, axis=1)
