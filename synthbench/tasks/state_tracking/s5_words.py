"""The task s5_words."""

from dataclasses import dataclass
from typing import ClassVar

from synthbench.tasks.base import running_levels, task
from synthbench.tasks.state_tracking._groups import S5
from synthbench.tasks.state_tracking._words import GroupWords, inputs_option


@task
@dataclass(frozen=True)
class S5Words(GroupWords):
    """Name the running product of permutations of five points.

    Token 0 is the identity; 1 to 4 swap the point 0 with 1, 2, 3 and 4. Tokens 11 and 12 move points in a cycle: 0 to 1
    to 2, or 0 to 2 to 1::

        inputs    1 2 11 0 12
        targets   1 11 12 12 11

    Tests tracking an element of a group that is not solvable. An input is a product of up to four swaps, each of which
    is one reflection. A delta rule applies one reflection per token, so it needs several layers or 4 tokens per
    element; nonlinear recurrences need neither. The task is easier with ``num_inputs=11`` (the identity and the swaps)
    or 31 (all permutations that move up to three points).

    Source: Grazzi et al. (2025), section 5.2. They pad each element to 4 tokens with a special token; here, the
    identity is the padding.
    """

    name: ClassVar = "s5_words"
    source: ClassVar = "grazzi2025negative"
    length: ClassVar = 32
    levels: ClassVar = running_levels(6, num_inputs=5)
    group: ClassVar = S5
    num_inputs: int = inputs_option(5, 120)
