"""What figures are drawn from, worked out once for all of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from synthbench.reports.figures.drawing import COLOURS, Look, looks
from synthbench.reports.grid import Grid, MechanismFacts, Row, TaskFacts
from synthbench.reports.leaderboard import Leaderboard
from synthbench.reports.separation import SMALLEST_GAP


@dataclass(frozen=True)
class Facts:
    """The rows of one report with what was made of them."""

    records: Sequence[Row]
    of: Grid
    averages: pd.DataFrame | None
    """Learning curves, as :func:`synthbench.reports.curves.mean_curves` averages them; None without curves."""
    board: Leaderboard | None
    """None below two seeds."""

    @cached_property
    def tasks(self) -> tuple[TaskFacts, ...]:
        """Those in which something can be won: the ones that the leaderboard counts."""
        return tuple(task for task in self.of.tasks if task.gap >= SMALLEST_GAP)

    @cached_property
    def best_first(self) -> tuple[MechanismFacts, ...]:
        """All mechanisms by their mean skill over the tasks; where there is none it counts as 0."""
        return tuple(sorted(self.of.mechanisms, key=self._mean_skill, reverse=True))

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The looks of as many mechanisms as there are colours, the best ones, by label and in printed order.

        They are the same in all figures of a report.
        """
        best = self.best_first[: len(COLOURS)]
        return looks([mechanism.label for mechanism in self.of.mechanisms if mechanism in best])

    @property
    def pale_words(self) -> str:
        """Says in a caption which mechanisms are pale; nothing if none is."""
        num_pale = len(self.of.mechanisms) - len(self.looks)
        return (
            f" In colour: the {len(self.looks)} with the best mean skill; pale: the other {num_pale}."
            if num_pale
            else ""
        )

    def _mean_skill(self, mechanism: MechanismFacts) -> float:
        skills = [self.of.cell(task, mechanism).skill for task in self.tasks]
        return float(np.mean([0.0 if math.isnan(skill) else skill for skill in skills])) if skills else 0.0
