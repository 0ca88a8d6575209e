"""The task a5_words."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks.base import running_levels, task
from synthbench.tasks.state_tracking._groups import A5
from synthbench.tasks.state_tracking._words import GroupWords, inputs_option


@task
@dataclass(frozen=True)
class A5Words(GroupWords):
    """Name the running product of even permutations of five points.

    Token 0 is the identity, 1 rotates the points 0 1 2, 2 rotates all five, and 4 is the product of 1 and 2::

        inputs    1 2 0
        targets   1 4 4

    Tests tracking an element of the smallest group that is not solvable. Diagonal recurrences and attention need more
    layers for longer sequences; a recurrence with full matrices needs only one layer. Compare with the tasks
    ``a4_z5_words`` and ``z60_words``, which have equally many tokens and answers, but solvable groups.

    Source: Merrill et al. (2024), the word problem of A5.
    """

    name: ClassVar = "a5_words"
    source: ClassVar = "merrill2024illusion"
    length: ClassVar = 32
    # The fewest inputs that generate the group: a table of more products takes longer to learn than a run lasts.
    levels: ClassVar = running_levels(6, num_inputs=3)
    group: ClassVar = A5
    num_inputs: int = inputs_option(3, 60)
