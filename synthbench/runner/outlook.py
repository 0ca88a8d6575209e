"""When a run will be done: what was expected of its jobs, corrected by what it has seen so far."""

from collections import defaultdict, deque
from dataclasses import dataclass
from functools import partial
from statistics import median

from synthbench.runner.config import Cell
from synthbench.runner.estimates import traits_of
from synthbench.runner.plan import Plan
from synthbench.runner.worker import Outcome

NUM_LATEST = 100
"""Rows of a kind that are looked back at: the machine may not be as busy as it was."""

Latest = partial(deque[float], maxlen=NUM_LATEST)


@dataclass
class _Cell:
    family: str
    cost: float
    """Of one member: seconds if it was measured on such a device, else work."""
    num_left: int = 0
    """Rows."""
    num_trained: int = 0
    """Members, those that tune included."""
    num_missing: int = 0
    """Rows at the beginning."""


def _key(cell: Cell) -> tuple[str, str]:
    """What an outcome names its cell by."""
    return cell.mechanism_name, cell.task_name


class Outlook:
    """Seconds that the rest of a plan will take.

    What a member of a cell takes is the median of those that came; else its cost in the plan, times how much longer
    than their cost those of the same mechanism took, else of the same family, else all.
    """

    def __init__(self, plan: Plan) -> None:
        self._cells: dict[tuple[str, str], _Cell] = {}
        self._is_timed = True
        for one in dict.fromkeys(cell for job in plan.jobs for cell in job.cells):
            traits = traits_of(one)
            self._cells[_key(one)] = _Cell(traits["mech_family"], plan.estimates.cost(traits))
            self._is_timed &= plan.estimates.share_s(traits) is not None
        for member in (member for job in plan.jobs for member in job.missing):
            self._cells[_key(member.cell)].num_left += 1
            self._cells[_key(member.cell)].num_missing += 1
        for member in (member for job in plan.jobs for member in job.trained):
            self._cells[_key(member.cell)].num_trained += 1
        self._seconds: dict[tuple[str, str], deque[float]] = defaultdict(Latest)
        self._slowness: dict[tuple[str, ...], deque[float]] = defaultdict(Latest)

    def see(self, outcome: Outcome) -> None:
        """Take note of a row that was written."""
        key = outcome.mechanism, outcome.task
        cell = self._cells[key]
        cell.num_left -= 1
        self._seconds[key].append(outcome.share_s)
        if outcome.status in ("ok", "diverged"):  # how long a failure takes says nothing of other cells
            for kin in self._kinships(key):
                self._slowness[kin].append(outcome.share_s / cell.cost)

    def left_s(self) -> float | None:
        """Seconds of one worker until the last row; None where nothing is known."""
        total = 0.0
        for key, cell in self._cells.items():
            if cell.num_left and cell.num_missing:
                member_s = self._member_s(key)
                if member_s is None:
                    return None
                total += member_s * cell.num_left * cell.num_trained / cell.num_missing
        return total

    def _member_s(self, key: tuple[str, str]) -> float | None:
        if self._seconds[key]:
            return median(self._seconds[key])
        cell = self._cells[key]
        for kin in self._kinships(key):
            if self._slowness[kin]:
                return cell.cost * median(self._slowness[kin])
        return cell.cost if self._is_timed else None

    def _kinships(self, key: tuple[str, str]) -> tuple[tuple[str, ...], ...]:
        return (("mechanism", key[0]), ("family", self._cells[key].family), ())
