"""The task s3_words."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks.base import running_levels, task
from synthbench.tasks.state_tracking._groups import S3
from synthbench.tasks.state_tracking._words import GroupWords, inputs_option


@task
@dataclass(frozen=True)
class S3Words(GroupWords):
    """Name the running product of permutations of three points.

    Token 0 is the identity. Token 1 swaps points 0 and 1, token 2 swaps 0 and 2, and token 3 swaps 1 and 2. Tokens 4
    and 5 move the points in a cycle: 0 to 1 to 2, or 0 to 2 to 1::

        inputs    1 2 4 0 3 5
        targets   1 4 5 5 1 3

    Tests tracking an element of the smallest group where the order of inputs matters. The group is solvable: a few
    layers of a diagonal recurrence can hold the state, but one layer cannot.

    Source: Merrill et al. (2024), the word problem of a group (name the product of a sequence of elements); their
    groups are larger.
    """

    name: ClassVar = "s3_words"
    source: ClassVar = "merrill2024illusion"
    length: ClassVar = 32
    # The fewest inputs that generate the group: a table of more products takes longer to learn than a run lasts.
    levels: ClassVar = running_levels(6, num_inputs=3)
    group: ClassVar = S3
    num_inputs: int = inputs_option(3, 6)
