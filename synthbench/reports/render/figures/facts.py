"""The data that all figures share, computed once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from synthbench.reports.aggregates import balanced
from synthbench.reports.cells import DIGITS, Cells, MechanismFacts, TaskFacts
from synthbench.reports.leaderboard import Leaderboard
from synthbench.reports.render.figures.drawing import COLOURS, Look, looks
from synthbench.reports.variants import Variant
from synthbench.reports.verdicts import is_ranked


@dataclass(frozen=True)
class Facts:
    """The rows of one report and what was computed from them."""

    cells: Cells
    averages: pd.DataFrame | None
    """Learning curves averaged by :func:`synthbench.reports.curves.mean_curves`; None without curves."""
    board: Leaderboard | None
    """The ranking; None if the report has none."""
    variants: Sequence[Variant] = ()

    @cached_property
    def tasks(self) -> tuple[TaskFacts, ...]:
        """The tasks that the leaderboard ranks."""
        return tuple(task for task in self.cells.tasks if is_ranked(task))

    @cached_property
    def best_first(self) -> tuple[MechanismFacts, ...]:
        """All mechanisms by mean skill, with equal weight for all categories; a run without a score counts as 0."""
        return tuple(sorted(self.cells.mechanisms, key=self._mean_skill, reverse=True))

    @cached_property
    def looks(self) -> dict[str, Look]:
        """Line styles of the best mechanisms by label, one per colour; all figures of a report share them."""
        best = self.best_first[: len(COLOURS)]
        return looks([mechanism.label for mechanism in self.cells.mechanisms if mechanism in best])

    def pale_words(self, drawn: Collection[str]) -> str:
        """Return the part of a caption that explains pale mechanisms; empty if none is pale."""
        num_pale = len(set(drawn) - set(self.looks))
        num_coloured = len(set(drawn)) - num_pale
        return f" In colour: the {num_coloured} with the best mean skill; pale: the other {num_pale}." * bool(num_pale)

    def _mean_skill(self, mechanism: MechanismFacts) -> float:
        if not self.tasks:
            return 0.0
        skills = [self.cells.skill_on(task, mechanism).value for task in self.tasks]
        mean = float(balanced([task.category for task in self.tasks]) @ np.nan_to_num(skills))
        return round(mean, DIGITS)  # rounding errors must not order equal means
