"""When a run will be done: what was expected of its jobs, corrected by what it has seen so far."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from synthbench.results import Store
from synthbench.runner.estimates import traits_of
from synthbench.runner.plan import Plan
from synthbench.runner.worker import Outcome, outcome_of
from synthbench.training.cell import Cell, Member

NUM_LATEST = 100
"""Only the latest rows of a kind count: the load of the machine changes."""

Latest = partial(deque[float], maxlen=NUM_LATEST)
Key = tuple[str, str]
"""Mechanism and task: what an outcome names its cell by."""


@dataclass(frozen=True)
class _Cell:
    family: str
    cost: float
    """Of one training: seconds if it was measured on such a device, else work."""


@dataclass(frozen=True)
class _Part:
    """Trainings that are done when one row is written."""

    key: Key
    num_trainings: int


class Eta:
    """How many trainings the rest of a plan takes, tuning included, and how many seconds.

    A training is expected to take the median time of those seen in its cell. If there are none, it is its cost in the
    plan, corrected by how far off the plan was for the same mechanism; else for its family; else for all.
    """

    def __init__(self, plan: Plan) -> None:
        self._cells: dict[Key, _Cell] = {}
        self._is_timed = True
        for cell in dict.fromkeys(cell for job in plan.jobs for cell in job.cells):
            traits = traits_of(cell)
            self._cells[_key(cell)] = _Cell(traits["mech_family"], plan.estimates.cost(traits))
            self._is_timed &= plan.estimates.share_s(traits) is not None
        self._parts: dict[str, _Part] = {}
        self._tuning_ids: dict[str, frozenset[str]] = {}
        for job in plan.jobs:
            tuning = _parts(job.untuned, job.untuned)
            missing = set(job.missing)
            rows = {name: part for group in job.groups for name, part in _parts(group, missing).items()}
            self._parts |= {**tuning, **rows}
            self._tuning_ids |= dict.fromkeys(rows, frozenset(tuning))
        self.num_trainings = self.num_left
        self._seconds: dict[Key, deque[float]] = defaultdict(Latest)
        self._slowness: dict[tuple[str, ...], deque[float]] = defaultdict(Latest)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The ids of the rows that are still to be written, tuning rows included."""
        return tuple(self._parts)

    @property
    def num_left(self) -> int:
        """Trainings that are still to be done."""
        return sum(part.num_trainings for part in self._parts.values())

    def see(self, outcome: Outcome) -> None:
        """Take note of a row that was written; a row counts once."""
        if self._parts.pop(outcome.run_id, None) is None:
            return
        key = outcome.mechanism, outcome.task
        self._seconds[key].append(outcome.share_s)
        if outcome.status in ("ok", "diverged"):  # how long a failure takes says nothing of other cells
            for kin in self._kinships(key):
                self._slowness[kin].append(outcome.share_s / self._cells[key].cost)

    def end(self, outcome: Outcome) -> None:
        """Take note of a row of a job that has ended: what it has not tuned by now it never will."""
        self.see(outcome)
        for name in self._tuning_ids.pop(outcome.run_id, ()):
            self._parts.pop(name, None)

    def left_s(self) -> float | None:
        """Seconds of one worker until the last row; None where nothing is known."""
        left: Counter[Key] = Counter()
        for part in self._parts.values():
            left[part.key] += part.num_trainings
        total = 0.0
        for key, num_trainings in left.items():
            training_s = self._training_s(key)
            if training_s is None:
                return None
            total += training_s * num_trainings
        return total

    def _training_s(self, key: Key) -> float | None:
        if self._seconds[key]:
            return median(self._seconds[key])
        cell = self._cells[key]
        for kin in self._kinships(key):
            if self._slowness[kin]:
                return cell.cost * median(self._slowness[kin])
        return cell.cost if self._is_timed else None

    def _kinships(self, key: Key) -> tuple[tuple[str, ...], ...]:
        return (("mechanism", key[0]), ("family", self._cells[key].family), ())


class Watch:
    """Looks for new rows in a store, tuning rows included: an executor tells only of jobs that have ended.

    Args:
        results: Folder of the store.
        run_ids: The rows that are waited for. What is in the store by now is not one of them.
    """

    def __init__(self, results: Path, run_ids: Collection[str]) -> None:
        self._store = Store.open(results, create=False)
        self._waiting = set(run_ids)
        self._seen = set(self._store.loose())

    def news(self) -> list[Outcome]:
        """The rows that were written since the last call; quick where there is none."""
        files = set(self._store.loose()) - self._seen
        self._seen |= files
        rows = [row for row in self._store.rows_in(sorted(files)) if row["run_id"] in self._waiting]
        self._waiting -= {row["run_id"] for row in rows}
        return [outcome_of(row) for row in rows]


def _key(cell: Cell) -> Key:
    return cell.mechanism_name, cell.task_name


def _parts(together: Sequence[Member], missing: Container[Member]) -> dict[str, _Part]:
    """The rows that some trainings make; members that only train again count with the first row."""
    rows = [member for member in together if member in missing]
    num_again = len(together) - len(rows)
    return {member.run_id: _Part(_key(member.cell), 1 + num_again * (member is rows[0])) for member in rows}
