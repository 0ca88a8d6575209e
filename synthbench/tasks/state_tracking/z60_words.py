"""The task z60_words."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthbench.tasks.base import Tokens, running_levels, task
from synthbench.tasks.state_tracking._groups import Z60
from synthbench.tasks.state_tracking._words import GroupWords, inputs_option


@task
@dataclass(frozen=True)
class Z60Words(GroupWords):
    """Name the running sum modulo 60.

    ::

        inputs    41 2 0 30 59
        targets   41 43 43 13 12

    Tests tracking an element of a group where order does not matter: a single rotation angle can represent the state.
    This task is the control for the task ``a5_words``, which has equally many tokens and answers, but a group where
    order matters.

    Source: Merrill et al. (2024), the word problem of Z60.
    """

    name: ClassVar = "z60_words"
    source: ClassVar = "merrill2024illusion"
    length: ClassVar = 32
    # The fewest inputs that generate the group: a table of more products takes longer to learn than a run lasts.
    levels: ClassVar = running_levels(6, num_inputs=3)
    group: ClassVar = Z60
    num_inputs: int = inputs_option(3, 60)

    def level_shortcuts(self, inputs: Tokens) -> dict[str, Tokens]:
        """Return the guesses of :meth:`shortcuts` and of two rules that add up only some of the numbers read so far.

        One rule adds up the later half, the other the last quarter. Both assume the likeliest sum for the remaining
        numbers.
        """
        step = self.tokens_per_element
        elements = inputs[:, ::step]
        sums = np.pad(elements.cumsum(axis=1), ((0, 0), (1, 0)))
        read = np.arange(1, elements.shape[1] + 1)
        found = self.shortcuts(inputs)
        for name, share in {"later half": 2, "later quarter": 4}.items():
            begin = read - -(-read // share)
            # Inputs are uniform from 0 up to the last, so their likeliest sum is in the middle.
            unread = begin * (self.num_inputs - 1) // 2
            guesses = (sums[:, read] - sums[:, begin] + unread) % self.group.order
            found[name] = np.repeat(guesses, step, axis=1)[:, : inputs.shape[1]]
        return found
