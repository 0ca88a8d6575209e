"""Runs what is missing: the one function behind ``synthbench run`` and :func:`synthbench.run`.

A request becomes a plan and an executor (:mod:`synthbench.runner.prepare`), the executor gives the plan's jobs to
workers, and a worker writes the rows of its job (:mod:`synthbench.runner.worker`). This process only watches.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from synthbench.contract.trial import record
from synthbench.contract.verdicts import violation
from synthbench.mechanisms import MECHANISMS
from synthbench.results import Store
from synthbench.runner import predictions
from synthbench.runner.executors import Executor
from synthbench.runner.plan import Plan
from synthbench.runner.prepare import CONTRACT, prepare
from synthbench.runner.request import Request
from synthbench.runner.worker import Outcome, RunContext
from synthbench.training.cell import Member


@dataclass(repr=False)
class RunReport:
    """The result of a request."""

    results: Path
    members: Mapping[str, Member]
    """Of all planned rows by their ids."""
    num_done_before: int
    num_failed_before: int = 0
    """Of these, the rows without a score."""
    outcomes: list[Outcome] = field(default_factory=list)
    wall_s: float = 0.0
    is_interrupted: bool = False

    def __repr__(self) -> str:
        counts = f"{len(self.outcomes)} rows written, {self.num_done_before} already done, {len(self.failed)} failed"
        return f"RunReport({self.num_planned} planned: {counts}, {self.wall_s:.1f} s)"

    @property
    def run_ids(self) -> Sequence[str]:
        """The ids of all planned rows."""
        return tuple(self.members)

    @property
    def num_planned(self) -> int:
        """Rows that there should be."""
        return len(self.members)

    @property
    def rows(self) -> pd.DataFrame:
        """The planned rows that are in the store, failed ones too."""
        rows = Store.open(self.results, create=False).runs()
        return rows[rows["run_id"].isin(self.run_ids)].reset_index(drop=True)

    @property
    def failed(self) -> list[Outcome]:
        """Rows that were written without a score."""
        return [outcome for outcome in self.outcomes if outcome.status != "ok"]

    @property
    def ok(self) -> bool:
        """Whether every planned row is there with a score."""
        return not self.failed and not self.num_failed_before and not self.is_interrupted

    def followed_by(self, other: "RunReport") -> "RunReport":
        """The result of two requests as that of one, the second into the same store."""
        return RunReport(
            self.results,
            {**self.members, **other.members},
            self.num_done_before + other.num_done_before,
            self.num_failed_before + other.num_failed_before,
            [*self.outcomes, *other.outcomes],
            self.wall_s + other.wall_s,
            self.is_interrupted or other.is_interrupted,
        )


def run(
    request: Request,
    *,
    on_plan: Callable[[Plan, Executor], None] = lambda _plan, _executor: None,
    on_outcome: Callable[[Outcome], None] = lambda _outcome: None,
    stop: threading.Event | None = None,
) -> RunReport:
    """Run what is missing and write a row for each member; the same request again runs only what is still missing.

    Args:
        request: What to run, and where.
        on_plan: Called once, before the first job.
        on_outcome: Called for every row that was written.
        stop: Set it to begin no further job.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store cannot be written; raised before any training where it can be known.
        ContractError: If a plugin cannot be loaded, or a unit of one cannot be built.
    """
    began = time.monotonic()
    stop = stop or threading.Event()
    prepared = prepare(request)
    request, findings, plan, executor = prepared.request, prepared.findings, prepared.plan, prepared.executor
    Store.open(request.results, create=True)
    if request.predictions is not None:
        predictions.prepare(request.predictions)
    record(findings, request.results / CONTRACT)
    report = RunReport(request.results, plan.members, plan.num_done, plan.num_failed)
    on_plan(plan, executor)
    context = RunContext(
        results=request.results.absolute(),
        device=str(prepared.device),
        executor=executor.name,
        planned_at=time.time(),
        replaced_at=plan.replaced_at,
        plugins=request.plugins,
        violations={
            subject.name: broken
            for subject, verdicts in findings.items()
            if subject.kind == MECHANISMS.kind and (broken := violation(verdicts)) is not None
        },
        is_deterministic=request.deterministic,
        predictions=request.predictions and request.predictions.absolute(),
    )
    for event in executor.run(plan.jobs, context, stop):
        for outcome in event.outcomes:
            report.outcomes.append(outcome)
            on_outcome(outcome)
    report.is_interrupted = len(report.outcomes) < plan.num_missing
    report.wall_s = time.monotonic() - began
    return report
