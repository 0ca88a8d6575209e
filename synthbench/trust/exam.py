"""What a second test says of a row that somebody else's code has made (:mod:`synthbench.training.exam`)."""

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from synthbench.heights import rungs_in
from synthbench.training.cell import Member
from synthbench.training.exam import Mark, Paper, hand_out, marks_of, papers_of
from synthbench.trust.compare import Row

STANDARD_ERRORS = 5.0
"""How far a model may fall behind what its row says, in standard errors of the difference of two tests.

A row may have eight rungs, a submission thousands of rows; by chance this happens once in 3.5 million tests.
"""
MOST_CHANGED = 0.02
"""Largest share of predictions that other tokens behind them may change: a tie of two logits may break either way."""


@dataclass
class Exam:
    """The second test of one member: what was asked, and what the answers are worth."""

    run_id: str
    papers: Mapping[int, Paper]
    marks: list[Mark] | None = None
    """None until they are marked, and if the answers are missing."""

    @classmethod
    def of(cls, member: Member, folder: Path) -> "Exam":
        """Draw new sequences and hand their inputs out; nobody knows the salt afterwards."""
        exam = cls(member.run_id, papers_of(member, secrets.token_hex(16)))
        hand_out(exam.papers, folder, exam.run_id)
        return exam

    def mark(self, folder: Path) -> None:
        """Mark the answers that lie in the folder."""
        self.marks = marks_of(self.papers, folder, self.run_id)

    @property
    def accuracy(self) -> float | None:
        """Mean over the papers."""
        return sum(mark.accuracy for mark in self.marks) / len(self.marks) if self.marks else None

    def contradicts(self, row: Row) -> str | None:
        """In words what the answers say against a row of the model that gave them; None if nothing.

        A model may do better than its row says: nobody claims too little.
        """
        if row["status"] != "ok":
            return None
        if self.marks is None:
            return "its model left no answers on new sequences"
        claims = [rung.score for rung in rungs_in(json.loads(row["metrics"]))] or [row["score"]]
        if len(claims) != len(self.marks):
            return f"it has {len(claims)} scores for {len(self.marks)} tests"
        for number, (claimed, mark) in enumerate(zip(claims, self.marks, strict=True), start=1):
            where = f" of rung {number}" if len(claims) > 1 else ""
            if claimed - mark.accuracy > STANDARD_ERRORS * math.sqrt(2) * mark.standard_error:
                return f"it says {claimed:.4f} of its test{where}, and new sequences give {mark.accuracy:.4f}"
            if mark.changed > MOST_CHANGED:
                return f"tokens behind a prediction{where} change {mark.changed:.0%} of the predictions"
        return None
