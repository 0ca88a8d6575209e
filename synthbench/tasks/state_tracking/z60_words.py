"""The task z60_words."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks.base import running_rungs, task
from synthbench.tasks.state_tracking._groups import Z60
from synthbench.tasks.state_tracking._words import GroupWords, inputs_knob


@task
@dataclass(frozen=True)
class Z60Words(GroupWords):
    """Name the running sum modulo 60.

    ::

        inputs    41 2 0 30 59
        targets   41 43 43 13 12

    Tests a state in a group where the order of what was read does not matter: one rotation can hold it. The control for
    ``a5_words``, which has as many tokens and answers.

    Source: Merrill et al. (2024), the word problem of Z60.
    """

    name: ClassVar = "z60_words"
    source: ClassVar = "merrill2024illusion"
    length: ClassVar = 32
    # The fewest inputs that generate the group: to learn a table of more products takes longer than a run lasts.
    rungs: ClassVar = running_rungs(6, num_inputs=3)
    group: ClassVar = Z60
    num_inputs: int = inputs_knob(3, 60)
