"""The task induction_latest."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from synthbench.tasks.base import task
from synthbench.tasks.hops._controlled import TRIGGER_LEVELS, ControlledInduction


@task
@dataclass(frozen=True)
class InductionLatest(ControlledInduction):
    """The last token is a trigger that has occurred several times; name the token that followed its latest occurrence.

    With ``num_symbols=8``, ``num_triggers=2`` and ``repeats=2``, the triggers are 8 and 9::

        inputs    8 3 1 9 0 5 8 6 9 3 2 8
        targets   . . . . . . . . . . . 6

    Tests induction where the context contradicts itself: a trigger's successor (the token after it) differs each time.
    Mechanisms with decay prefer recent tokens, so this task should be easier for them than the task
    ``induction_first``. Mechanisms that simply add up the past mix all successors. Longer test sequences have more
    random symbols between the triggers, so distances grow.

    Source: Olsson et al. (2022), who define induction heads. Repeating triggers and asking for the latest occurrence
    are our additions.
    """

    name: ClassVar = "induction_latest"
    policy: ClassVar = "latest"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after the latest copy *": "The successor of the latest occurrence is the answer.",
        }
    )
    levels: ClassVar = TRIGGER_LEVELS
    load: ClassVar = "triggers"
