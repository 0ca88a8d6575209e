"""The task induction_majority."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from synthbench.options import option
from synthbench.tasks._draws import distinct
from synthbench.tasks.base import task
from synthbench.tasks.hops._controlled import ControlledInduction


@task
@dataclass(frozen=True)
class InductionMajority(ControlledInduction):
    """The last token is a trigger that has been followed by two different tokens; name the more frequent one.

    With ``num_symbols=8``, ``num_triggers=2`` and ``repeats=3``, the triggers are 8 and 9::

        inputs    8 3 1 9 0 5 8 6 9 4 8 6 2 9 4 8
        targets   . . . . . . . . . . . . . . . 6

    Tests induction that weighs all occurrences alike. Mechanisms that simply add up the past weigh them alike;
    mechanisms with decay or overwriting do not. On all levels of the task, each trigger occurs an odd number of times,
    and the more frequent token leads by one. Longer test sequences have more random symbols between the triggers or, if
    a model is trained on several levels, more occurrences of each trigger.

    Source: Olsson et al. (2022), who define induction heads. Repeating triggers and asking for the majority are our
    additions.
    """

    name: ClassVar = "induction_majority"
    policy: ClassVar = "majority"
    no_shortcuts: ClassVar = MappingProxyType(
        {
            "after the most frequent copy of *": "The most frequent successor is the answer.",
        }
    )
    length: ClassVar = 96
    # The more occurrences, the smaller the relative lead of the winner. Two triggers leave little else to remember.
    levels: ClassVar = tuple(
        {"load": repeats, "length": length, "num_symbols": 16, "num_triggers": 2, "repeats": repeats, "num_asked": 2}
        for repeats, length in (
            (3, 16),
            (5, 24),
            (7, 32),
            (11, 48),
            (15, 64),
            (23, 96),
            (31, 128),
            (47, 192),
            (63, 256),
            (95, 384),
            (127, 512),
            (191, 768),
            (255, 1024),
        )
    )
    # The winner of each trigger is the rival of the other, so counting successors without their triggers reveals
    # nothing. Only one trigger is asked, because its answer reveals the answer of the other.
    extended_levels: ClassVar = tuple({**level, "num_asked": 1, "is_shared": True} for level in levels[1:])
    load: ClassVar = "occurrences"
    is_shared: bool = option(
        default=False,
        meaning="whether each two triggers have the same two successors, the winner of one being the other's rival",
        is_addition=True,
    )
    repeats: int = option(5, "how often each trigger occurs before it is asked", low=3, high=512)

    def draw_successors(self, rng: np.random.Generator, num_sets: int) -> Int[np.ndarray, "sets repeats"]:
        """Draw the tokens that follow each of ``num_sets`` triggers: copies of a majority and of a minority symbol.

        The first ``repeats // 2 + 1`` tokens of a row are the majority symbol, and the rest are the minority symbol.
        With ``is_shared``, triggers form pairs: the majority symbol of one trigger is the minority symbol of the other.
        """
        candidates = distinct(rng, num_sets, 2, self.num_symbols)
        if self.is_shared:
            by_sequence, num_paired = candidates.reshape(-1, self.num_triggers, 2), self.num_triggers // 2 * 2
            by_sequence[:, 1:num_paired:2] = by_sequence[:, :num_paired:2, ::-1]
        is_rival = np.arange(self.repeats) > self.repeats // 2
        return candidates[:, is_rival.astype(np.int64)]
