"""The second test of what ran somebody else's code, as the driver holds it (:mod:`synthbench.training.exam`)."""

import json
import math
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from synthbench.bits import BITS
from synthbench.heights import rungs_in
from synthbench.registry import is_built_in
from synthbench.results.store import HELD, mark_in_use
from synthbench.runner.plan import Job
from synthbench.tasks import TASKS
from synthbench.training.cell import Cell, Member
from synthbench.training.exam import Mark, hand_out, marks_of, papers_of, take_back

STANDARD_ERRORS = 5.0
"""How far a model may fall behind what its row says, in standard errors of the difference of two tests.

A row may have eight rungs, and a submission thousands of rows.
"""
MOST_CHANGED = 0.02
"""Largest share of predictions that other tokens behind them may change: a tie of two logits may break either way."""


class Sitting(NamedTuple):
    """The result of one member's second test."""

    marks: Mapping[int, Mark] | None
    """By rung, or of the test as 1; None if its model left no answers."""
    num_rungs: int
    """Of its task; 0 in a suite without ladders."""

    @property
    def accuracy(self) -> float | None:
        """Mean over the rungs."""
        return sum(mark.accuracy for mark in self.marks.values()) / len(self.marks) if self.marks else None

    def contradicts(self, row: Mapping[str, Any]) -> str | None:
        """In words what the answers say against the row of the model that gave them; None if nothing.

        A model may do better than its row says: nobody claims too little.
        """
        if row["status"] != "ok":
            return None
        if self.marks is None:
            return "its model left no answers on new sequences"
        is_ladder = self.num_rungs > 0
        claims = [rung.score for rung in rungs_in(json.loads(row["metrics"]))] if is_ladder else [_share_right(row)]
        if self.num_rungs not in (0, len(claims)):
            return f"it has {len(claims)} rungs, and its task {self.num_rungs}"
        for number, mark in self.marks.items():
            claimed, where = claims[number - 1], f" on rung {number}" if self.num_rungs else ""
            most = mark.accuracy + STANDARD_ERRORS * math.sqrt(2) * mark.standard_error_if(claimed)
            if not claimed <= most:  # nor is what is not a number
                return f"it says it is right in {claimed:.4f} of its test{where}; on new sequences {mark.accuracy:.4f}"
            if mark.changed > MOST_CHANGED:
                return f"other tokens behind them change {mark.changed:.0%} of its predictions{where}"
        return None


def _share_right(row: Mapping[str, Any]) -> float:
    """The accuracy that a row claims; one in bits says it by its counts."""
    return row["n_correct"] / row["n_eval_examples"] if row["metric_name"].endswith(BITS) else row["score"]  # type: ignore[no-any-return]


class Exam:
    """Second tests for the members of some jobs; what decides the sequences stays in this process.

    Args:
        folder: Where the inputs and the answers lie; removed by :meth:`close`. Workers see it.
        most_sequences: Sequences of a test; None for as many as the suite tests on.
    """

    def __init__(self, folder: Path, most_sequences: int | None = None) -> None:
        self.folder = folder
        self._most = most_sequences
        self._salt = secrets.token_hex(16)
        self._held: BinaryIO | None = None

    def hand_out(self, job: Job) -> None:
        """Write the inputs for the members of a job that sit a second test."""
        for member in job.members:
            if sits(member):
                self._hold()
                hand_out(papers_of(member, self._salt, self._most), self.folder, member.run_id)

    def sitting(self, member: Member) -> Sitting:
        """Mark the answers of a member, and clear its files away."""
        marks = marks_of(papers_of(member, self._salt, self._most), self.folder, member.run_id)
        take_back(self.folder, member.run_id)
        return Sitting(marks, len(member.cell.rungs))

    def close(self) -> None:
        """Remove the folder."""
        if self._held is not None:
            self._held.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _hold(self) -> None:
        """Make the folder, and mark it in use: a job may wait for days in the queue of a cluster."""
        if self._held is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._held = (self.folder / HELD).open("wb")
            mark_in_use(self._held)


def sits(member: Member) -> bool:
    """Whether a member's model sits a second test: it runs somebody else's code on a task that comes with synthbench.

    The task of a plugin would be drawn in this process, and its author sets the questions anyway.
    """
    return is_foreign(member.cell) and TASKS.is_built_in(member.cell.task_name)


def is_foreign(cell: Cell) -> bool:
    """Whether a component of a cell does not come with synthbench."""
    return not all(map(is_built_in, cell.components))
