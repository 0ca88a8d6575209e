"""The task parity_running."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Task, Tokens, running_levels, task
from synthbench.tasks.state_tracking._parity import draw_bits, latest_parities, likelier_parity, running_parity


@task
@dataclass(frozen=True)
class ParityRunning(Task):
    """At every position, answer 1 if the number of ones so far is odd, else 0.

    ::

        inputs    1 0 1 1 0
        targets   1 1 0 1 1

    Like ``parity_final``, this task needs a state of one bit, which every 1 flips. Here each flip has its own target,
    so models that can hold the state learn the task sooner.

    Source: Delétang et al. (2023), regular tasks. They ask once, after the string; here, every position asks.
    """

    name: ClassVar = "parity_running"
    source: ClassVar = "deletang2023chomsky"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "any*but even": "An odd number of ones is the answer.",
        }
    )
    length: ClassVar = 40
    levels: ClassVar = running_levels(6)
    one_rate: float = option(0.5, "probability of a one", low=0.01, high=0.99)

    @property
    def vocab_size(self) -> int:
        """Number of ids: zero and one."""
        return 2

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw independent bits; each position asks for the parity of the number of ones so far."""
        inputs = draw_bits(rng, (batch_size, length), self.one_rate)
        return Batch(inputs, running_parity(inputs))

    def floor(self, length: int) -> Bound:
        """Return the probability of the likelier parity, averaged over positions: 1/2 if ``one_rate`` is 1/2."""
        return Bound(float(likelier_parity(np.arange(1, length + 1), self.one_rate).mean()))

    def shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the answers of two rules, which ignore all but the latest bit, or all but the latest four bits."""
        return latest_parities(inputs)
