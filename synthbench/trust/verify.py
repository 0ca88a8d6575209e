"""Rerun a sample of result rows made by others, with the configurations in the rows, and compare the results.

Each row's id, the hash of ``config_json``, is looked up among the runs that the row's suite plans. If the suite has
changed, the id is not found, and the row is not rerun. A re-run is ordinary training, but writes to a temporary store.

Foreign code, which does not come with synthbench, runs only in other processes, and this process compares the results.
If a row's task is built in, but another component of the row is foreign, this process computes the score of the re-run
from the model's answers (:mod:`synthbench.runner.held_out`).
"""

import json
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from synthbench import __version__
from synthbench.canonical import canonical_json
from synthbench.contract.isolated import IsolatedProcess
from synthbench.errors import ContractError, UsageError
from synthbench.process import temporary_folder
from synthbench.results import Store
from synthbench.runner import held_out
from synthbench.runner.environment import resolve_device, usable_cores
from synthbench.runner.held_out import Result
from synthbench.runner.request import RunContext
from synthbench.training.ladder_scores import with_committed_baselines
from synthbench.trust import replan
from synthbench.trust.audit import digest, faults, sample
from synthbench.trust.compare import Row, Verdict, curves_of, judged, tolerance_of
from synthbench.trust.replan import CannotVerify, Checked, Groups, is_foreign

AGAIN = "again"
"""Word that replaces the id of the command in the folder names of jobs that are run again."""


@dataclass(frozen=True)
class Rerun:
    """Result of running a row again. The row was in the sample, or was trained together with a row of the sample."""

    run_id: str
    row_sha256: str
    task: str
    mechanism: str
    seed: int
    recorded: float | None
    again: float | None
    tolerance: float
    """Allowed difference of the scores where bitwise equality cannot be expected."""
    verdict: Verdict
    detail: str
    device_name: str

    @property
    def difference(self) -> float | None:
        """Score of the re-run minus the recorded score; None if one of the scores is missing."""
        return None if self.recorded is None or self.again is None else self.again - self.recorded

    @property
    def is_confirmed(self) -> bool:
        """True if the re-run agrees with the row, to the last bit or within the tolerance."""
        return self.verdict in ("bitwise", "tolerance")


@dataclass
class Verification:
    """The result of checking rows and running a sample of the rows again."""

    num_rows: int
    digest: str
    checksums: list[str] = field(default_factory=list)
    """Checksums of the rows that were checked."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of the name of a row or file (run id or path) and a description of its fault."""
    unverifiable: dict[str, str] = field(default_factory=dict)
    """Reasons why rows cannot be run again here, by run id."""
    notes: list[str] = field(default_factory=list)
    """Remarks on rows without faults, one sentence each."""
    reruns: list[Rerun] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if there is no fault, every row is verifiable, and all re-runs (at least one) agree with the rows."""
        is_sound = bool(self.reruns) and not self.faults and not self.unverifiable
        return is_sound and all(rerun.is_confirmed for rerun in self.reruns)

    def summary(self) -> str:
        """Summarise the result in one line."""
        counts = Counter(rerun.verdict for rerun in self.reruns)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "none"
        return (
            f"{self.num_rows} rows checked, {len(self.faults)} faults, {len(self.unverifiable)} cannot be verified; "
            f"run again: {verdicts}; digest {self.digest}"
        )

    def confirmed(self, name: str) -> list[dict[str, Any]]:
        """Return a record of each confirmed row, in the form that :meth:`synthbench.results.Store.verify` expects.

        Args:
            name: Name of the person who verified the rows, for the record.
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
    """Settings of a verification: which rows are run again, and how.

    For each sampled row, the whole batch of runs that were trained together is run again, because the last bits of a
    result depend on the batch.
    """

    fraction: float = 0.05
    """Fraction of the rows to draw, above 0 and up to 1; at least one row is drawn."""
    salt: str = ""
    """Text that changes the sample; if empty, only the hash of the rows decides it."""
    limit: int | None = None
    """Limit on the number of rows to draw; None for no limit."""
    device: str = "auto"
    """Device of the re-runs; ``auto`` is the type of device that made the row, if this machine has one."""
    timeout_s: float = 600.0
    """Seconds after which a job is killed."""
    workers: int | None = None
    """Number of worker processes; None for one per core. With 0, built-in components run in this process."""
    plugins: Sequence[str] = ()
    """Files and modules with further components, besides those of synthbench and of installed packages."""

    def __post_init__(self) -> None:
        """Check that all numbers are in range.

        Raises:
            UsageError: If a number is out of range.
        """
        if not 0 < self.fraction <= 1:
            raise UsageError(f"fraction is {self.fraction}; allowed: above 0, up to 1")
        if self.workers is not None and self.workers < 0:
            raise UsageError(f"workers is {self.workers}; allowed: 0 and more")
        if not self.timeout_s > 0:
            raise UsageError(f"timeout is {self.timeout_s}; allowed: more than 0 seconds")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit is {self.limit}; allowed: 1 and more")

    def device_of(self, row: Row) -> torch.device:
        """Return the device on which a row is run again."""
        if self.device != "auto":
            return resolve_device(self.device)
        try:
            return resolve_device(row["device_type"])
        except UsageError:
            return resolve_device("auto")


def verify(
    store: Store, sampling: Sampling, *, on_plan: Callable[[int], None] = lambda _num_rows: None
) -> Verification:
    """Check every row of a store, then run a sample of the rows again and compare the results.

    Args:
        store: The store with the rows.
        sampling: Settings of the verification: which rows are run again, and how.
        on_plan: Function that is called before the re-runs; its argument is the number of rows to run again.
    """
    rows = store.table(is_checked=True).to_pylist()
    verification = Verification(len(rows), digest(rows), [row["row_sha256"] for row in rows])
    verification.faults = [(file.file, file.reason) for file in store.quarantined]
    now = datetime.now(UTC)
    wrong = {row["run_id"]: faults(row, now) for row in rows}
    verification.faults += [(name, fault) for name, found in wrong.items() for fault in found]
    sound = [row for row in rows if not wrong[row["run_id"]]]
    own, foreign = [row for row in sound if not is_foreign(row)], [row for row in sound if is_foreign(row)]
    checked = [replan.check(own), *([_checked_apart(foreign, sampling)] if foreign else [])]
    for found in checked:
        verification.unverifiable |= found.unverifiable
        verification.faults += found.faults
    verification.notes = _notes(sound)
    at_fault = {name for name, _ in verification.faults} | verification.unverifiable.keys()
    drawn = sample(rows, sampling.fraction, sampling.salt)[: sampling.limit]
    groups = Groups([row for row in sound if row["run_id"] not in verification.unverifiable])
    batches = groups.batches(name for name in drawn if name not in at_fault)
    on_plan(sum(map(len, batches)))
    verification.reruns = _run_again(batches, groups, store, sampling)
    return verification


def _checked_apart(rows: Sequence[Row], sampling: Sampling) -> Checked:
    """Check the rows that name foreign code, in a separate process, since foreign code cannot be trusted."""
    with IsolatedProcess(sampling.plugins, sampling.timeout_s) as isolated:
        try:
            found = isolated.attempt("a plan", replan.check, rows)
        except (ContractError, UsageError) as problem:
            return Checked({row["run_id"]: str(problem) for row in rows}, [])
    for row in rows:
        if not is_foreign(row, ("task",)):
            try:
                replan.tested_by(row)
            except CannotVerify as reason:
                found.unverifiable[row["run_id"]] = str(reason)
    return found


def _notes(rows: Sequence[Row]) -> list[str]:
    num_migrated = sum(row["migrated_from"] is not None for row in rows)
    num_of_tasks = sum(is_foreign(row, ("task",)) for row in rows)
    notes = {
        f"rows written under an older schema: {num_migrated}, each matches its original": num_migrated,
        f"rows on a plugin's task: {num_of_tasks}, whose scores are what its own process says": num_of_tasks,
    }
    return [text for text, count in notes.items() if count]


@dataclass(frozen=True)
class Made:
    """A recorded row and its re-run."""

    row: Row
    """The row as recorded."""
    again: Row | None
    curves: tuple[pd.DataFrame | None, pd.DataFrame | None] = (None, None)
    standard_error: float | None = None
    """Standard error of the score if it was measured anew from a foreign model's answers; otherwise None."""
    problem: str | None = None
    """Reason why the row was not made again; None if it was."""

    def judged(self, deviation: float) -> tuple[Verdict, str]:
        """Decide whether the re-run confirms the row; return the verdict and a text with the reason.

        Args:
            deviation: Standard deviation of the scores over seeds, as in :func:`tolerance_of`.
        """
        row = with_committed_baselines(self.row)
        tolerance = tolerance_of(self.row, deviation, self.standard_error)
        if self.problem is not None:
            return "not run", self.problem
        if is_foreign(self.row) and self.again is not None and (wrong := faults(self.again, datetime.now(UTC))):
            return "differs", wrong[0]  # somebody else's code wrote that row
        is_asked = self.standard_error is not None
        if is_asked or row["metrics"] == self.row["metrics"]:
            return judged(row, self.again, self.curves, tolerance, is_asked=is_asked)
        metrics = json.loads(row["metrics"])
        metrics.pop("validation_accuracy", None)
        row |= {"metrics": canonical_json(metrics), "curve_sha256": None}
        verdict, reason = judged(row, self.again, (None, None), tolerance)
        return verdict, f"{reason}; without its validation, which was counted from other baselines"

    @property
    def is_doubtful(self) -> bool:
        """True if the verdict depends on how much the scores of the row's mechanism and task vary over seeds."""
        return self.judged(0.0)[0] == "differs" != self.judged(math.inf)[0]


def _run_again(batches: Sequence[list[Row]], groups: Groups, store: Store, sampling: Sampling) -> list[Rerun]:
    """Run batches of rows (trained together) again and judge each row.

    If a score differs too much, the row's mechanism is also trained again on the same task with other seeds, to measure
    how far scores scatter over seeds.
    """
    made = _made_again(batches, groups, store, sampling)
    sampled = list(made)
    doubtful = [name for name in sampled if made[name].is_doubtful]
    siblings = (sibling for name in doubtful for sibling in groups.siblings(made[name].row) if sibling not in made)
    made |= _made_again(groups.batches(siblings), groups, store, sampling)
    found = []
    for name in sampled:
        # Only re-runs decide the tolerance, never the rows that are verified.
        again = [made[sibling].again for sibling in groups.siblings(made[name].row) if sibling in made]
        known = [other["score"] for other in again if other is not None and other["score"] is not None]
        deviation = float(np.std(known, ddof=1)) if name in doubtful and len(known) > 1 else 0.0
        found.append(_rerun(made[name], deviation))
    return found


def _made_again(batches: Sequence[list[Row]], groups: Groups, store: Store, sampling: Sampling) -> dict[str, Made]:
    """Run batches of rows (trained together) again; return the results with run ids as keys.

    All rows whose code comes with synthbench are run first, before any foreign code.
    """
    made: dict[str, Made] = {}
    tuning = [row for row in groups.rows.values() if row["role"] is not None]
    for foreign in (False, True):
        some = [batch for batch in batches if is_foreign(batch[0]) == foreign]
        num_workers = min(len(some), usable_cores() if sampling.workers is None else sampling.workers)
        with IsolatedProcess(sampling.plugins if foreign else (), sampling.timeout_s, max(1, num_workers)) as isolated:
            attempt = isolated.attempt if foreign or num_workers else _attempt_here
            with ThreadPoolExecutor(max(1, num_workers)) as threads:
                for found in threads.map(partial(_made_apart, tuning, store, sampling, attempt), some):
                    made |= found
    return made


def _attempt_here(_what: str, function: Callable[..., None], *arguments: Any) -> None:
    function(*arguments)


def _made_apart(
    tuning: Sequence[Row], store: Store, sampling: Sampling, attempt: Callable[..., None], batch: Sequence[Row]
) -> dict[str, Made]:
    """Run one batch of rows again with a temporary store of its own, and read only these rows from it."""
    first, run_ids = batch[0], [row["run_id"] for row in batch]
    has_others = is_foreign(first)
    is_asked = has_others and first["role"] is None and not is_foreign(first, ("task",))
    with temporary_folder("synthbench-verify-") as scratch:
        folder = held_out.folder_named(Path(scratch), AGAIN, run_ids[0]) if has_others else Path(scratch)
        Store.open(folder, create=True)
        questions = {}
        for name, row in zip(run_ids, batch, strict=True) if is_asked else ():
            questions[name] = held_out.questions_of(replan.tested_by(row), f"{secrets.token_hex(16)}:{name}")
            held_out.write_inputs(questions[name], folder, name)
        context = RunContext(
            results=Path(scratch),
            device=str(sampling.device_of(first)),
            executor="verify",
            planned_at=time.time(),
            is_deterministic=bool(first["deterministic"]),
            driver=AGAIN,
        )
        try:
            attempt("a re-run", replan.run_again, [*batch, *tuning], run_ids, context)
        except ContractError as problem:
            return {row["run_id"]: Made(row, None, problem=str(problem)) for row in batch}
        there = Store.open(folder, create=False)
        again, curves, curves_again = there.find(run_ids), curves_of(store, run_ids), curves_of(there, run_ids)
        results = {name: held_out.results_of(some, folder, name) for name, some in questions.items()}
    made = {
        name: Made(row, again.get(name), (curves.get(name), curves_again.get(name)))
        for name, row in zip(run_ids, batch, strict=True)
    }
    return made | {name: _measured(made[name], found) for name, found in results.items()}


def _measured(made: Made, results: Mapping[int, Result] | None) -> Made:
    if made.again is None:
        return made
    again = with_committed_baselines(held_out.measured(made.again, results))
    error = held_out.standard_error_of(again, results) if results is not None and again["status"] == "ok" else 0.0
    return replace(made, again=again, standard_error=error)


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
        tolerance=tolerance_of(row, deviation, made.standard_error),
        verdict=verdict,
        detail=detail,
        device_name=again["device_name"] if again else "",
    )
