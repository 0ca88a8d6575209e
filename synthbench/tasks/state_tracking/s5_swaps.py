"""The task s5_swaps."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks.base import running_levels, task
from synthbench.tasks.state_tracking._groups import S5
from synthbench.tasks.state_tracking._words import GroupWords, inputs_option


@task
@dataclass(frozen=True)
class S5Swaps(GroupWords):
    """Name the running product of permutations of five points, each of which swaps two points.

    Tokens 1 to 4 swap the point 0 with 1, 2, 3 and 4. Ids are the same as in the task ``s5_words``; for example, 11
    rotates the points 0 1 2::

        inputs    1 2 3
        targets   1 11 34

    Tests tracking an element of a group that is not solvable; each input is one reflection. One layer of a delta rule
    should hold the state if its eigenvalues range from -1 to 1, but not if they range from 0 to 1.

    Source: Grazzi et al. (2025), section 5.2. Their inputs include the identity, like the inputs of ``s5_words`` with
    ``num_inputs=11``.
    """

    name: ClassVar = "s5_swaps"
    source: ClassVar = "grazzi2025negative"
    length: ClassVar = 32
    # The fewest inputs that generate the group: a table of more products takes longer to learn than a run lasts.
    levels: ClassVar = running_levels(6, num_inputs=4)
    not_tested: ClassVar = "Products of any permutations: each input moves two points only."
    group: ClassVar = S5
    first_input: ClassVar = 1
    num_inputs: int = inputs_option(4, 10)
