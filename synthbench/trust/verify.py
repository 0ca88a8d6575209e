"""Runs a sample of somebody's rows again, exactly as the rows say, and tells whether the same comes out.

A row is looked up in the plan of its suite by its id, the hash of ``config_json``, so a suite that has changed since
runs none of its rows. It is run as a job like any other, into a store that is thrown away, and the rows are compared.

Code that does not come with synthbench runs in other processes only (:mod:`synthbench.trust.standins`). What they say
is not believed either: their models sit a second test, whose answers they never see (:mod:`synthbench.training.exam`).
"""

import json
import math
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from synthbench import __version__, plugins
from synthbench.canonical import canonical_json
from synthbench.contract.trial import Trial
from synthbench.errors import UsageError
from synthbench.process import reserve_workspace
from synthbench.registry import is_built_in
from synthbench.results import Store
from synthbench.runner.environment import resolve_device
from synthbench.runner.exam import Exam, Sitting, sits
from synthbench.runner.executors import make_executor
from synthbench.runner.plan import Job, Plan
from synthbench.runner.request import Request
from synthbench.runner.worker import RunContext
from synthbench.training.ladder_scores import with_committed_baselines
from synthbench.trust.audit import digest, faults, sample
from synthbench.trust.compare import Points, Row, Verdict, curves_of, judged, tolerance_of
from synthbench.trust.lookup import CannotVerify, Groups, against_the_code, of_other_source


@dataclass(frozen=True)
class Rerun:
    """A row of the sample, or of the group that was trained with one, and what came out now."""

    run_id: str
    row_sha256: str
    task: str
    mechanism: str
    seed: int
    recorded: float | None
    again: float | None
    tolerance: float
    """How far the scores may be apart where not every bit can be expected to agree."""
    verdict: Verdict
    detail: str
    device_name: str
    exam: float | None = None
    """Accuracy on new sequences, over all rungs; None for a component that comes with synthbench."""

    @property
    def difference(self) -> float | None:
        """Now less recorded."""
        return None if self.recorded is None or self.again is None else self.again - self.recorded

    @property
    def is_confirmed(self) -> bool:
        """Whether the same came out."""
        return self.verdict in ("bitwise", "tolerance")


@dataclass
class Verification:
    """The result of checking some rows."""

    num_rows: int
    digest: str
    checksums: list[str] = field(default_factory=list)
    """Of the rows that were checked."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """What is wrong with a row or a file, by run id or name."""
    unverifiable: dict[str, str] = field(default_factory=dict)
    """Why a row cannot be run again here, by run id."""
    notes: list[str] = field(default_factory=list)
    """Remarks on rows in which nothing is wrong, a sentence each."""
    reruns: list[Rerun] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, all rows could be run again, some were, and all of these came out the same."""
        is_sound = bool(self.reruns) and not self.faults and not self.unverifiable
        return is_sound and all(rerun.is_confirmed for rerun in self.reruns)

    def summary(self) -> str:
        """The whole in one line."""
        counts = Counter(rerun.verdict for rerun in self.reruns)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "none"
        return (
            f"{self.num_rows} rows checked, {len(self.faults)} faults, {len(self.unverifiable)} cannot be verified; "
            f"run again: {verdicts}; digest {self.digest}"
        )

    def confirmed(self, name: str) -> list[dict[str, Any]]:
        """What :meth:`synthbench.results.Store.verify` records of the rows that came out the same.

        Args:
            name: Who says so.
        """
        now = datetime.now(UTC)
        return [
            {
                "run_id": rerun.run_id,
                "row_sha256": rerun.row_sha256,
                "verdict": rerun.verdict,
                "verified_by": name,
                "verified_at": now,
                "synthbench_version": __version__,
                "device_name": rerun.device_name,
                "score": rerun.again,
            }
            for rerun in self.reruns
            if rerun.is_confirmed
        ]


@dataclass(frozen=True)
class Sampling:
    """Which rows are run again, and on what.

    A sampled row brings the whole group that was trained with it: it takes no longer, and the last bits depend on it.
    """

    fraction: float = 0.05
    """Share of the rows, above 0 and up to 1; at least one row."""
    salt: str = ""
    """Draws another sample; without it the hash of the rows decides alone."""
    limit: int | None = None
    """Most rows to draw."""
    device: str = "auto"
    """``auto`` is the row's own kind of device where this machine has one."""
    timeout_s: float | None = None
    """Seconds after which a job is killed; None for no limit."""
    workers: int | None = None
    """Worker processes; None for one a core."""
    plugins: Sequence[str] = ()
    """Files and modules that the units are in, besides those of synthbench and of installed packages."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            UsageError: If a number is out of range.
        """
        if not 0 < self.fraction <= 1:
            raise UsageError(f"fraction is {self.fraction}; allowed: above 0, up to 1")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit is {self.limit}; allowed: 1 and more")

    def device_of(self, row: Row) -> torch.device:
        """Where a row is run again."""
        if self.device != "auto":
            return resolve_device(self.device)
        try:
            return resolve_device(row["device_type"])
        except UsageError:
            return resolve_device("auto")


def verify(
    store: Store,
    sampling: Sampling,
    *,
    trial: Trial | None = None,
    on_plan: Callable[[int], None] = lambda _num_rows: None,
) -> Verification:
    """Check every row of a store, then run a sample again and compare.

    Args:
        store: The rows.
        sampling: Which of them are run again.
        trial: The process that has the code of components for which there are stand-ins here; None if there are none.
        on_plan: Called with the number of rows that will be.
    """
    rows = store.table(is_checked=True).to_pylist()
    verification = Verification(len(rows), digest(rows), [row["row_sha256"] for row in rows])
    verification.faults = [(file.file, file.reason) for file in store.quarantined]
    now = datetime.now(UTC)
    sound = []
    for row in rows:
        wrong = faults(row, now)
        verification.faults += [(row["run_id"], fault) for fault in wrong]
        if not wrong:
            sound.append(row)
    groups = Groups(sound, trial)
    other_source: Counter[str] = Counter()
    for row in sound:
        try:
            verification.faults += [(row["run_id"], fault) for fault in against_the_code(row, groups)]
            other_source.update(of_other_source(row, groups.member(row).cell))
        except CannotVerify as reason:
            verification.unverifiable[row["run_id"]] = str(reason)
    verification.notes = _notes(sound, other_source)
    at_fault = {name for name, _ in verification.faults}
    drawn = sample(rows, sampling.fraction, sampling.salt)[: sampling.limit]
    jobs = groups.jobs(name for name in drawn if name not in at_fault | verification.unverifiable.keys())
    on_plan(sum(len(rows_of_job) for _, rows_of_job in jobs))
    verification.reruns = _run_again(jobs, groups, store, sampling)
    return verification


def _notes(rows: Sequence[Row], other_source: Mapping[str, int]) -> list[str]:
    num_migrated = sum(row["migrated_from"] is not None for row in rows)
    migrated = f"rows written under an older schema: {num_migrated}, each found to be the row that it was then"
    others = ", ".join(f"{unit} ({count} rows)" for unit, count in sorted(other_source.items()))
    return [
        *([migrated] if num_migrated else []),
        *([f"made by another source of the same version: {others}"] if others else []),
    ]


@dataclass(frozen=True)
class Made:
    """A row that was made again."""

    row: Row
    """As recorded."""
    again: Row | None
    curves: tuple[Points | None, Points | None]
    sitting: Sitting | None
    """The second test of its model; None where all code is built in, or that chose a learning rate."""

    def judged(self, deviation: float) -> tuple[Verdict, str]:
        """The verdict, and the reason, where the seeds of the cell scatter by some standard deviation."""
        if self.again is not None and self.sitting is not None:  # somebody else's code wrote that row too
            against_itself = next(iter(faults(self.again, datetime.now(UTC))), None)
            if (caught := against_itself or self.sitting.contradicts(self.again)) is not None:
                return "differs", caught
        row, tolerance = with_committed_baselines(self.row), tolerance_of(self.row, deviation)
        if row["metrics"] == self.row["metrics"]:
            return judged(row, self.again, self.curves, tolerance)
        metrics = json.loads(row["metrics"])
        metrics.pop("validation_accuracy", None)
        row |= {"metrics": canonical_json(metrics), "curve_sha256": None}
        verdict, reason = judged(row, self.again, (None, None), tolerance)
        return verdict, f"{reason}; without its validation, which was counted from other baselines"

    @property
    def is_doubtful(self) -> bool:
        """Whether it depends on the scatter of its cell if the row is confirmed."""
        return self.judged(0.0)[0] == "differs" != self.judged(math.inf)[0]


def _run_again(jobs: Sequence[tuple[Job, list[Row]]], groups: Groups, store: Store, sampling: Sampling) -> list[Rerun]:
    """Run jobs and judge their rows; where one is too far off, the other seeds of its cell say how much is usual."""
    made = _made_again(jobs, store, sampling)
    sampled = list(made)
    doubtful = [name for name in sampled if made[name].is_doubtful]
    siblings = (sibling for name in doubtful for sibling in groups.siblings(made[name].row) if sibling not in made)
    made |= _made_again(groups.jobs(dict.fromkeys(siblings)), store, sampling)
    found = []
    for name in sampled:
        # What was handed in has no say in how far it may be off.
        again = [made[sibling].again for sibling in groups.siblings(made[name].row) if sibling in made]
        known = [other["score"] for other in again if other is not None and other["score"] is not None]
        deviation = float(np.std(known, ddof=1)) if name in doubtful and len(known) > 1 else 0.0
        found.append(_rerun(made[name], deviation))
    return found


def _made_again(jobs: Sequence[tuple[Job, list[Row]]], store: Store, sampling: Sampling) -> dict[str, Made]:
    """Rows by run id, each recorded and made again."""
    by_settings: dict[tuple[str, bool], list[Job]] = {}
    for job, rows in jobs:
        settings = str(sampling.device_of(rows[0])), bool(rows[0]["deterministic"])
        by_settings.setdefault(settings, []).append(job)
    expected = {row["run_id"]: row for _, rows in jobs for row in rows}
    sittings: dict[str, Sitting] = {}
    with tempfile.TemporaryDirectory(prefix="synthbench-verify-") as folder:
        scratch = Path(folder)
        Store.open(scratch, create=True)
        for (device, is_deterministic), some in by_settings.items():
            if is_deterministic:
                reserve_workspace(torch.device(device))
            request = Request(timeout_s=sampling.timeout_s, workers=sampling.workers)
            units = [unit for job in some for cell in job.cells for unit in cell.components]
            executor = make_executor(
                request,
                Plan(tuple(some), len(some), 0),
                torch.device(device),
                is_foreign=not all(map(is_built_in, units)),
                is_in_session=any(unit.__module__ == "__main__" for unit in units),
            )
            context = RunContext(
                results=scratch,
                device=device,
                executor=executor.name,
                planned_at=time.time(),
                plugins=[plugins.resolved(plugin) for plugin in sampling.plugins],
                is_deterministic=is_deterministic,
            )
            with closing(Exam(context.papers)) as exam:
                for event in executor.run(some, context, threading.Event(), exam.hand_out):
                    sittings |= {member.run_id: exam.sitting(member) for member in event.job.members if sits(member)}
        made = Store.open(scratch, create=False)
        again = {row["run_id"]: row for row in made.table(is_checked=True).to_pylist()}
        curves, curves_again = curves_of(store, expected), curves_of(made, expected)
    return {
        name: Made(row, again.get(name), (curves.get(name), curves_again.get(name)), sittings.get(name))
        for name, row in expected.items()
    }


def _rerun(made: Made, deviation: float) -> Rerun:
    row, again = made.row, made.again
    verdict, detail = made.judged(deviation)
    return Rerun(
        run_id=row["run_id"],
        row_sha256=row["row_sha256"],
        task=row["task"],
        mechanism=row["mech"],
        seed=row["seed"],
        recorded=with_committed_baselines(row)["score"],
        again=again["score"] if again else None,
        tolerance=tolerance_of(row, deviation),
        verdict=verdict,
        detail=detail,
        device_name=again["device_name"] if again else "",
        exam=made.sitting.accuracy if made.sitting else None,
    )
