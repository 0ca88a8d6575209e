"""The task a4_z5_words."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks.base import running_levels, task
from synthbench.tasks.state_tracking._groups import A4_Z5
from synthbench.tasks.state_tracking._words import GroupWords, inputs_option


@task
@dataclass(frozen=True)
class A4Z5Words(GroupWords):
    """Name the running product of elements of the group A4 x Z5.

    An element is a pair of an even permutation of four points and a residue modulo 5. Token 0 is the identity. Token 1
    rotates the points 0 1 2 and adds 1 to the residue. Token 2 swaps points 0 1 and points 2 3. Token 4 is the product
    of 1 and 2::

        inputs    1 2 0
        targets   1 4 4

    Tests tracking an element of a group that is solvable but not commutative. Because the group is solvable, a few
    layers of a diagonal recurrence can hold the state. This task is the control for the task ``a5_words``, which has
    equally many tokens and answers, but a group that is not solvable.

    Source: Merrill et al. (2024), the word problem of A4 x Z5.
    """

    name: ClassVar = "a4_z5_words"
    source: ClassVar = "merrill2024illusion"
    length: ClassVar = 32
    # The fewest inputs that generate the group: a table of more products takes longer to learn than a run lasts.
    levels: ClassVar = running_levels(6, num_inputs=3)
    group: ClassVar = A4_Z5
    num_inputs: int = inputs_option(3, 60)
