"""What figures are drawn from, worked out once for all of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from synthbench.reports.aggregates import balanced
from synthbench.reports.cells import Cells, MechanismFacts, Row, TaskFacts
from synthbench.reports.leaderboard import Leaderboard
from synthbench.reports.render.figures.drawing import COLOURS, Look, looks
from synthbench.reports.verdicts import is_ranked


@dataclass(frozen=True)
class Facts:
    """The rows of one report with what was made of them."""

    records: Sequence[Row]
    of: Cells
    averages: pd.DataFrame | None
    """Learning curves, as :func:`synthbench.reports.curves.mean_curves` averages them; None without curves."""
    board: Leaderboard | None
    """None below two seeds."""

    @cached_property
    def tasks(self) -> tuple[TaskFacts, ...]:
        """Those in which something can be won: the ones that the leaderboard counts."""
        return tuple(task for task in self.of.tasks if is_ranked(task))

    @cached_property
    def best_first(self) -> tuple[MechanismFacts, ...]:
        """All mechanisms by their mean skill, every category alike; a run without a score counts as 0."""
        return tuple(sorted(self.of.mechanisms, key=self._mean_skill, reverse=True))

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The looks of as many mechanisms as there are colours, the best ones, by label and in printed order.

        They are the same in all figures of a report.
        """
        best = self.best_first[: len(COLOURS)]
        return looks([mechanism.label for mechanism in self.of.mechanisms if mechanism in best])

    def pale_words(self, drawn: Collection[str]) -> str:
        """Says in a caption which of the mechanisms that are drawn are pale; nothing if none is."""
        num_pale = len(set(drawn) - set(self.looks))
        num_coloured = len(set(drawn)) - num_pale
        return f" In colour: the {num_coloured} with the best mean skill; pale: the other {num_pale}." * bool(num_pale)

    def _mean_skill(self, mechanism: MechanismFacts) -> float:
        if not self.tasks:
            return 0.0
        cells = [self.of.cell(task, mechanism) for task in self.tasks]
        skills = np.array([cell.skill * cell.n / (cell.n + cell.num_failed) if cell.n else 0.0 for cell in cells])
        return float(balanced([task.category for task in self.tasks]) @ skills)
