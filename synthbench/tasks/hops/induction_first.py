"""The task induction_first."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from synthbench.tasks.base import task
from synthbench.tasks.hops._controlled import TRIGGER_LEVELS, ControlledInduction


@task
@dataclass(frozen=True)
class InductionFirst(ControlledInduction):
    """The last token is a trigger that has occurred several times; name the token that followed its first occurrence.

    With ``num_symbols=8``, ``num_triggers=2`` and ``repeats=2``, the triggers are 8 and 9::

        inputs    8 3 1 9 0 5 8 6 9 3 2 8
        targets   . . . . . . . . . . . 3

    Tests induction where the model must remember the token that first followed a trigger, although other tokens
    followed the trigger later. The inputs are the same as in the task ``induction_latest``. So a difference between the
    scores on these two tasks shows a bias towards recent tokens, for example from decay or overwriting. Longer test
    sequences have more random symbols between the triggers, so distances grow.

    Source: Olsson et al. (2022), who define induction heads. Repeating triggers and asking for the first occurrence are
    our additions.
    """

    name: ClassVar = "induction_first"
    policy: ClassVar = "first"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after the first copy of *": "The successor of the first occurrence is the answer.",
        }
    )
    levels: ClassVar = TRIGGER_LEVELS
    load: ClassVar = "triggers"
