"""The task stack."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.options import option
from synthbench.tasks.base import Batch, Bound, Task, task


@task
@dataclass(frozen=True)
class Stack(Task):
    """At each POP, name the value popped from a stack; at all other positions, answer 0.

    With ``vocabulary=8``, PUSH is 6 and POP is 7::

        inputs    3 6 6 1 7 7 4 6
        targets   0 0 0 0 2 5 0 0

    The task does not test the use of a stack: the inputs do not show the values pushed, so answers at a POP can only be
    guessed.

    Source: Luna, Bouhsine & Choromanski (2026), section 3.3 and table 8, as in the published code.
    """

    name: ClassVar = "stack"
    source: ClassVar = "slay2026"
    length: ClassVar = 32
    not_tested: ClassVar = "Use of a stack: the values pushed are not in the input, so the answers cannot be known."
    vocabulary: int = option(32, "number of tokens, PUSH and POP among them", low=3, high=65536)
    pop_rate: float = option(0.3, "probability of a POP where the stack is not empty", low=0, high=1)
    push_rate: float = option(0.5, "probability of a PUSH where there is no POP", low=0, high=1)

    def sample(self, rng: np.random.Generator, batch_size: int, length: int) -> Batch:
        """Draw uniform tokens, then replace some by PUSH and POP."""
        push, pop = self.vocabulary - 2, self.vocabulary - 1
        # Positions come first: the loop below takes one of them at a time.
        size = (length, batch_size)
        inputs = rng.integers(push, size=size)
        pushed = rng.integers(push, size=size)
        may_pop = rng.random(size) < self.pop_rate
        may_push = rng.random(size) < self.push_rate
        targets = np.zeros_like(inputs)
        stack = np.zeros_like(inputs)
        depth = np.zeros(batch_size, dtype=np.int64)
        rows = np.arange(batch_size)
        # A POP needs a stack that is not empty, and the depth is what all earlier positions left: hence this recursion.
        for position in range(length):
            is_pop = may_pop[position] & (depth > 0)
            is_push = may_push[position] & ~is_pop
            depth -= is_pop
            inputs[position, is_push] = push
            inputs[position, is_pop] = pop
            targets[position] = is_pop * stack[np.minimum(depth, length - 1), rows]
            stack[depth[is_push], rows[is_push]] = pushed[position, is_push]
            depth += is_push
        return Batch(inputs.T.copy(), targets.T.copy())

    def floor(self, length: int) -> Bound:
        """Return the accuracy of guessing 0 everywhere, which is right except at a POP of a value other than 0."""
        return Bound(self._accuracy(length))

    def ceiling(self, length: int) -> Bound:
        """Return the floor: values at a POP can only be guessed, and 0 is right everywhere else."""
        return Bound(self._accuracy(length))

    def _accuracy(self, length: int) -> float:
        depth = np.zeros(length + 2)
        depth[0] = 1
        num_pops = 0.0
        for _ in range(length):
            popped = self.pop_rate * depth
            popped[0] = 0
            num_pops += popped.sum()
            pushed = self.push_rate * (depth - popped)
            depth = depth - popped - pushed
            depth[:-1] += popped[1:]
            depth[1:] += pushed[:-1]
        return float(1 - num_pops / length * (1 - 1 / (self.vocabulary - 2)))
