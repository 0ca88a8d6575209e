"""Trains the missing runs of a request: the function behind ``synthbench run`` and :func:`synthbench.run`.

:func:`prepare` turns a request into a plan and an executor, and writes nothing to the store. The executor gives the
plan's jobs to workers, and each worker writes the rows of its job (:mod:`synthbench.runner.worker`).
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from synthbench import plugins
from synthbench.blocks import BLOCKS
from synthbench.contract.checks import CheckResult, first_failure
from synthbench.contract.components import REGISTRIES, Component, Devices, check_foreign, record
from synthbench.contract.isolated import IsolatedProcess
from synthbench.errors import ContractError, StoreError
from synthbench.forms import kernels
from synthbench.mechanisms import MECHANISMS
from synthbench.options import parse_term
from synthbench.positions import POSITIONS
from synthbench.process import reserve_workspace
from synthbench.results import Store
from synthbench.runner.environment import resolve_device
from synthbench.runner.executors import Executor, JobDone, make_executor
from synthbench.runner.held_out import HeldOutTest
from synthbench.runner.plan import Plan, Selected, options_in, plan_request, select_components
from synthbench.runner.request import EXECUTORS, Request, RunContext
from synthbench.runner.rows import prepare_folder
from synthbench.runner.worker import RunOutcome, outcome_of
from synthbench.tasks import TASKS
from synthbench.training.cell import Run
from synthbench.training.ladder_scores import rescored

CONTRACT = "contract"
"""Folder in the store with the check results of components that do not come with synthbench."""

Checks = dict[Component, list[CheckResult]]


@dataclass(repr=False)
class RunReport:
    """The result of a request: the planned rows of results, how many were already done, and what was written."""

    results: Path
    runs: Mapping[str, Run]
    """All planned runs, by run id."""
    num_done_before: int
    num_failed_before: int = 0
    """Number of rows without a score among those already done."""
    outcomes: list[RunOutcome] = field(default_factory=list)
    wall_s: float = 0.0
    is_interrupted: bool = False

    def __repr__(self) -> str:
        counts = f"{len(self.outcomes)} rows written, {self.num_done_before} already done, {len(self.failed)} failed"
        return f"RunReport({self.num_planned} planned: {counts}, {self.wall_s:.1f} s)"

    @property
    def num_planned(self) -> int:
        """Number of planned rows."""
        return len(self.runs)

    @property
    def rows(self) -> pd.DataFrame:
        """The planned rows that are in the store, including failed ones."""
        return planned_rows(self.runs, self.results)

    @property
    def failed(self) -> list[RunOutcome]:
        """Outcomes of the rows that this call wrote and that have no score."""
        return [outcome for outcome in self.outcomes if outcome.status != "ok"]

    @property
    def ok(self) -> bool:
        """True if every planned row has a score."""
        return not self.failed and not self.num_failed_before and not self.is_interrupted

    def followed_by(self, other: "RunReport") -> "RunReport":
        """Combine this report with the report of a later request to the same store."""
        return RunReport(
            self.results,
            {**self.runs, **other.runs},
            self.num_done_before + other.num_done_before,
            self.num_failed_before + other.num_failed_before,
            [*self.outcomes, *other.outcomes],
            self.wall_s + other.wall_s,
            self.is_interrupted or other.is_interrupted,
        )


def planned_rows(runs: Mapping[str, Run], results: Path) -> pd.DataFrame:
    """Read the rows of planned runs from a store; runs without a row are left out.

    A row made for another suite with the same protocol is labelled with the planned run's suite. Scores on levels of
    built-in tasks are computed anew with the installed shortcut baselines (scores of rules that avoid what a task
    tests).

    Args:
        runs: Planned runs, by run id.
        results: Folder of the store.
    """
    rows = Store.open(results, create=False).runs()
    rows = rescored(rows[rows["run_id"].isin(list(runs))].reset_index(drop=True))
    cells = [runs[run_id].cell for run_id in rows["run_id"]]
    return rows.assign(
        suite=[cell.suite.name for cell in cells],
        suite_version=[cell.suite.version for cell in cells],
        is_full=[cell.is_full for cell in cells],
    )


def run(
    request: Request,
    *,
    on_plan: Callable[[Plan, Executor], None] = lambda _plan, _executor: None,
    on_outcome: Callable[[RunOutcome], None] = lambda _outcome: None,
    is_stopped: Callable[[], bool] = lambda: False,
    most_loose: int = 200,
) -> RunReport:
    """Train the runs that have no row of results yet, and write their rows; repeat an interrupted call to continue.

    Args:
        request: What to run, and where.
        on_plan: Called once, with the plan and the executor, before the first job.
        on_outcome: Called with each run's outcome once its row is written.
        is_stopped: Function that returns True once no further job may begin.
        most_loose: Limit on the number of files that each hold the rows of one job. If the store has more such files at
            the end, they are merged.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store cannot be written; where possible, this is checked before any training.
        ContractError: If a plugin cannot be loaded, one of its components cannot be built, or a component other than a
            mechanism fails a check.
    """
    began = time.monotonic()
    prepared = prepare(request)
    plan, executor = prepared.plan, prepared.executor
    context = _opened(prepared)
    report = RunReport(request.results, plan.runs, plan.num_done, plan.num_failed)
    on_plan(plan, executor)
    with closing(HeldOutTest(context.results, context.driver)) as test:
        for done in executor.run(plan.jobs, context, is_stopped, test.begin):
            for outcome in _judged(done, test):
                report.outcomes.append(outcome)
                on_outcome(outcome)
    Store.open(request.results, create=True).tidy(most_loose)
    report.is_interrupted = len(report.outcomes) < plan.num_missing
    report.wall_s = time.monotonic() - began
    return report


@dataclass(frozen=True)
class Prepared:
    """A request that is ready to run, with its plan and executor."""

    request: Request
    device: torch.device
    checks: Checks
    """Check results of the components that do not come with synthbench."""
    plan: Plan
    executor: Executor


def prepare(request: Request, isolated: IsolatedProcess | None = None) -> Prepared:
    """Load plugins, check their components, plan the request, and choose the executor; the store is not changed.

    Each plugin is first loaded in a separate process, and then in this process. ``isolated`` is a separate process for
    the request's plugins that may be running already; None: a new one.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store cannot be read, or its path is not a folder.
        ContractError: If a plugin cannot be loaded, one of its components cannot be built, or a component other than a
            mechanism fails a check. A mechanism's failed check is recorded in its rows instead.
    """
    device = device_of(request)
    kernels.choice()  # refuses a misspelt choice before the first job
    if request.deterministic:
        reserve_workspace(device)
    if (request.results.exists() or request.results.is_symlink()) and not request.results.is_dir():
        raise StoreError(f"cannot write to the results store {request.results}: not a folder")
    request = replace(request, plugins=[plugins.resolved(plugin) for plugin in request.plugins])
    with nullcontext(isolated) if isolated else IsolatedProcess(request.plugins, request.timeout_s) as separate:
        separate.try_plugins()
        selected = select_components(request)
        checks = check_foreign(foreign_components(selected), separate, request.results / CONTRACT, devices_of(device))
    for component, results in checks.items():
        failure = first_failure(results)
        if failure is not None and component.kind != MECHANISMS.kind:  # rows of a mechanism have the status contract
            raise ContractError(failure)
    plan = plan_request(request, device, selected)
    executor = make_executor(
        request,
        plan,
        device,
        is_foreign=bool(checks or plugins.loaded()),
        is_in_session=any(component.is_in_session for component in checks),
    )
    return Prepared(request, device, checks, plan, executor)


def _opened(prepared: Prepared) -> RunContext:
    """Make the folders that a request needs, and return the settings shared by all of its jobs."""
    request, checks = prepared.request, prepared.checks
    Store.open(request.results, create=True)
    if request.predictions is not None:
        prepare_folder(request.predictions)
    if checks:
        record(checks, request.results / CONTRACT, devices_of(prepared.device))
    return RunContext(
        results=request.results.absolute(),
        device=str(prepared.device),
        executor=prepared.executor.name,
        planned_at=time.time(),
        replaced=prepared.plan.replaced,
        plugins=request.plugins,
        violations={
            component.name: failure
            for component, results in checks.items()
            if component.kind == MECHANISMS.kind and (failure := first_failure(results)) is not None
        },
        is_deterministic=request.deterministic,
        predictions=request.predictions and request.predictions.absolute(),
    )


def _judged(done: JobDone, test: HeldOutTest) -> list[RunOutcome]:
    """Return a job's outcomes; for foreign (not built-in) code, with scores that this process measured."""
    outcomes = {outcome.run_id: outcome for outcome in done.outcomes}
    for row in test.take(done.job):
        if row["run_id"] in outcomes:
            outcomes[row["run_id"]] = replace(outcome_of(row), trace=outcomes[row["run_id"]].trace)
    return list(outcomes.values())


def device_of(request: Request) -> torch.device:
    """Return the device that a request names; if a cluster runs the jobs, this machine need not have the device."""
    if EXECUTORS.get(request.executor, EXECUTORS["auto"]).is_elsewhere and request.device == "cuda":
        return torch.device("cuda")
    return resolve_device(request.device)


def devices_of(device: torch.device) -> Devices:
    """List the devices on which components are checked: the CPU and, if ``device`` is a GPU and present, that GPU."""
    is_here = device.type != "cpu" and torch.cuda.is_available()  # the GPU of a cluster may be on another machine
    return ("cpu", str(device)) if is_here else ("cpu",)


def foreign_components(selected: Selected) -> list[Component]:
    """List the selected components that do not come with synthbench, with the arguments used for them."""
    suite, tasks, mechanisms = selected
    model = suite.model
    around = [(BLOCKS.kind, model.block), (POSITIONS.kind, model.positions)]
    if model.positions_otherwise is not None:
        around.append((POSITIONS.kind, model.positions_otherwise))
    used: list[tuple[str, str, Mapping[str, Any]]] = [
        *((TASKS.kind, name, {**suite.tasks.get(name, {}), **given}) for name, given in tasks.items()),
        *((MECHANISMS.kind, name, options_in(suite, name) | given) for name, given in mechanisms.items()),
        *((kind, *parse_term(term)) for kind, term in around),
    ]
    return [
        Component(kind, name, arguments)
        for kind, name, arguments in used
        if name in REGISTRIES[kind] and not REGISTRIES[kind].is_built_in(name)
    ]
