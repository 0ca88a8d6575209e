"""Runs what is missing: the one function behind ``synthbench run`` and :func:`synthbench.run`."""

import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import torch

from synthbench import plugins
from synthbench.blocks import BLOCKS
from synthbench.contract.trial import REGISTRIES, Subject, Trial, record, vet
from synthbench.contract.verdicts import Verdict, violation
from synthbench.errors import ContractError, StoreError, UsageError
from synthbench.forms import kernels
from synthbench.knobs import parse_term
from synthbench.mechanisms import MECHANISMS
from synthbench.positions import POSITIONS
from synthbench.process import reserve_workspace
from synthbench.results import Store, published
from synthbench.results.schema import RUNS
from synthbench.runner import predictions
from synthbench.runner.environment import commit_warning
from synthbench.runner.estimates import TIMED, Estimates
from synthbench.runner.executors import Executor
from synthbench.runner.executors.choice import device_of, make_executor
from synthbench.runner.match import all_matched
from synthbench.runner.plan import (
    Plan,
    in_shard,
    make_cells,
    make_plan,
    parse_shard,
    select_mechanisms,
    select_tasks,
    shortened,
    surrounded,
)
from synthbench.runner.request import Request
from synthbench.runner.tally import statuses_in, tally
from synthbench.runner.worker import Outcome, RunContext
from synthbench.suites import EXTRA, Suite, load_suite
from synthbench.tasks import TASKS
from synthbench.terms import Selection
from synthbench.training.cell import Cell, Member
from synthbench.training.stream import TOKENS_AT_ONCE

GPU_GROUP_SIZE = 64
"""Members that a GPU trains as one program: its steps are bound by launches, not by work."""

RERUNS = ("none", "failed", "all")

_SOURCES = ("task_code_hash", "mech_code_hash")

CONTRACT = "contract"
"""Folder in that of the results, with what the contract says of units that do not come with synthbench."""


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


def plan_request(request: Request, device: torch.device) -> Plan:
    """What a request plans and what of it is missing; reads the store, writes nothing.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store exists and cannot be read.
    """
    if request.rerun not in RERUNS:
        raise UsageError(f"rerun is {request.rerun!r}; allowed: {', '.join(RERUNS)}")
    if request.group_size is not None and request.group_size < 1:
        raise UsageError(f"group size is {request.group_size}; allowed: 1 and more")
    cells, seeds = _requested(request, device)
    known = _known(request.results, ("run_id", "skill", "deterministic", *_SOURCES, *TIMED))
    columns = ("run_id", "skill", "status", "deterministic", *_SOURCES)
    sources = {tuple(cell.code[kind] for kind in ("task", "mech")) for cell in cells}
    done = {
        run_id: skill
        for run_id, skill, status, is_deterministic, *source in zip(
            *(known[name].to_pylist() for name in columns), strict=True
        )
        if (request.rerun == "none" or (request.rerun == "failed" and status == "ok"))
        and (is_deterministic or not request.deterministic)
        # A failure counts as long as the code that failed is here: what was mended gets another chance.
        and (status == "ok" or tuple(source) in sources or None in source)
    }

    def group_size(cell: Cell) -> int:
        return request.group_size or default_group_size(cell)

    plan = make_plan(
        cells,
        seeds,
        done,
        group_size,
        is_across_tasks=request.group_size is not None or device.type == "cuda",
        estimates=Estimates(_timed(known, device.type)),
    )
    statuses = dict(zip(known["run_id"].to_pylist(), known["status"].to_pylist(), strict=True))
    scored = [run_id for run_id in plan.run_ids if run_id in done and statuses[run_id] == "ok"]
    num_failed = plan.num_done - len(scored)
    notices = [*_on_extra_tasks(cells, request.results), *_on_predictions(scored, request.predictions)]
    if (warning := commit_warning()) is not None:
        notices.append(warning)
    if num_failed:
        notices.append(f"{num_failed} of the rows already done failed; --rerun failed makes them again")
    return replace(plan, num_failed=num_failed, notices=tuple(notices))


def _on_predictions(scored: Sequence[str], folder: Path | None) -> Iterator[str]:
    """How many of the rows that need no run have no predictions, if these are asked for."""
    if folder is None:
        return
    missing = [run_id for run_id in scored if not predictions.path_of(folder, run_id).exists()]
    if missing:
        yield f"{len(missing)} of the rows already done have no predictions in {folder}; --rerun all makes them"


def _on_extra_tasks(cells: Sequence[Cell], results: Path) -> Iterator[str]:
    """Which tasks a suite does not list, and the command that shows their tables; none shows shortened runs."""
    extra: dict[str, dict[str, bool]] = {}
    for cell in cells:
        if cell.suite.name.endswith(EXTRA):
            extra.setdefault(cell.suite.name, {})[cell.task_name] = cell.is_full
    for suite, tasks in extra.items():
        report = ["synthbench", "report", "--suite", suite]
        if results != Request.results:
            report += ["--results", str(results)]
        shown = f"; `{shlex.join(report)}` shows them" if all(tasks.values()) else ""
        yield f"not in suite {suite.removesuffix(EXTRA)!r}, so not in its tables: {', '.join(tasks)}{shown}"


def default_group_size(cell: Cell) -> int:
    """Members that train as one program, of a cell or of several; it depends on nothing but their size."""
    if cell.device_type == "cuda":
        return GPU_GROUP_SIZE
    ladder = cell.suite.ladder
    tokens = cell.suite.training.batch_size * cell.length if ladder is None else ladder.batch_tokens
    return max(1, TOKENS_AT_ONCE["cpu"] // tokens)


@dataclass(frozen=True)
class Prepared:
    """A request that can be run: its plan and what runs it."""

    request: Request
    device: torch.device
    findings: dict[Subject, list[Verdict]]
    """What the contract says of the components that do not come with synthbench."""
    plan: Plan
    executor: Executor


def prepare(request: Request) -> Prepared:
    """Everything that :func:`run` does before the first job, without a change to the store.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store cannot be read, or there can be none at its place.
        ContractError: If a plugin cannot be loaded, or a unit of one cannot be built.
    """
    device = device_of(request)
    kernels.choice()  # a misspelt one is refused before the first job
    if request.deterministic:
        reserve_workspace(device)
    if request.results.exists() and not request.results.is_dir():
        raise StoreError(f"cannot write to the results store {request.results}: not a folder")
    request = replace(request, plugins=[plugins.resolved(plugin) for plugin in request.plugins])
    findings = vetted(request)
    plan = plan_request(request, device)
    is_in_session = any(subject.is_in_session for subject in findings)
    executor = make_executor(request, plan, device, is_foreign=bool(findings), is_in_session=is_in_session)
    return Prepared(request, device, findings, plan, executor)


def progress_of(request: Request, device: torch.device) -> list[dict[str, Any]]:
    """How many rows of a request are there, failed and missing: one entry a category, and one for all.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store exists and cannot be read.
    """
    cells, seeds = _requested(request, device)
    planned = ((cell.task.category(), [member.run_id for member in cell.members(seeds)]) for cell in cells)
    return tally(planned, statuses_in(request.results))


def _requested(request: Request, device: torch.device) -> tuple[list[Cell], Sequence[int]]:
    plugins.load(request.plugins)
    suite, tasks, mechanisms = _selected(request)
    if suite.ladder is not None and request.predictions is not None:
        raise UsageError(
            f"predictions is {str(request.predictions)!r}; allowed: none in suite {suite.name!r}, whose models are "
            "tested on many rungs"
        )
    shorter = shortened(suite, steps=request.steps, limit=request.limit)
    cells = make_cells(
        shorter,
        tasks,
        mechanisms,
        device_type=device.type,
        is_full=shorter == suite,
    )
    if request.only is not None:
        cells = [cell for cell in cells if (cell.task_name, cell.mechanism_name) in request.only]
    if request.match is not None:
        cells = all_matched(cells, request.match)
    if request.shard is not None:
        cells = in_shard(cells, *parse_shard(request.shard))
    return cells, list(request.seeds) or suite.seeds


def _selected(request: Request) -> tuple[Suite, Selection, Selection]:
    """The suite, its tasks and the mechanisms that a request names; units of packages are not imported yet."""
    listed = load_suite(request.suite.removesuffix(EXTRA))
    suite = surrounded(listed, block=request.block, positions=request.positions)
    tasks = select_tasks(suite, request.tasks)
    if request.suite.endswith(EXTRA) and (own := [name for name in tasks if name in suite.tasks]):
        raise UsageError(
            f"task {own[0]!r} is one of suite {suite.name!r}; allowed in {request.suite!r}: registered tasks that "
            f"{suite.name!r} does not list, named one by one"
        )
    return suite, tasks, select_mechanisms(suite, list(request.mechanisms) or [",".join(suite.mechanisms)])


def foreign_subjects(request: Request) -> list[Subject]:
    """The units of a request that do not come with synthbench, with the arguments that they are used with.

    Raises:
        UsageError: If a name or a suite is not allowed.
    """
    suite, tasks, mechanisms = _selected(request)
    around = [(kind, *parse_term(term)) for kind, term in _around(suite)]
    used: list[tuple[str, str, Mapping[str, Any]]] = [
        *((TASKS.kind, name, {**suite.tasks.get(name, {}), **given}) for name, given in tasks.items()),
        *((MECHANISMS.kind, name, {**suite.mechanisms.get(name, {}), **given}) for name, given in mechanisms.items()),
        *around,
    ]
    return [
        Subject(kind, name, arguments)
        for kind, name, arguments in used
        if name in REGISTRIES[kind] and not REGISTRIES[kind].is_built_in(name)
    ]


def _around(suite: Suite) -> list[tuple[str, str]]:
    """Kind and term of what stands around the mechanisms."""
    model = suite.model
    terms = [(BLOCKS.kind, model.block), (POSITIONS.kind, model.positions)]
    return terms if model.positions_otherwise is None else [*terms, (POSITIONS.kind, model.positions_otherwise)]


def vetted(request: Request) -> dict[Subject, list[Verdict]]:
    """What the contract says of the units that do not come with synthbench; they are imported there first, then here.

    Raises:
        ContractError: If one cannot be loaded or built, or if it is no mechanism and breaks its contract: no row can
            be written without what a task, a block or a position encoding says.
    """
    with Trial(request.plugins, request.timeout_s) as trial:
        for plugin in request.plugins:
            trial.attempt(f"plugin {plugin!r}", plugins.load, [plugin])
        plugins.load(request.plugins)
        findings = vet(foreign_subjects(request), trial, request.results / CONTRACT)
    for subject, verdicts in findings.items():
        broken = violation(verdicts)
        if broken is not None and subject.kind != MECHANISMS.kind:
            raise ContractError(broken)
    return findings


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


def _timed(known: pa.Table, device_type: str) -> pd.DataFrame:
    """The rows that tell how long a run takes: one's own, or those of synthbench while there is none of the device."""
    own: pd.DataFrame = known.select(list(TIMED)).to_pandas()
    if (own["device_type"] == device_type).any():
        return own
    theirs: pd.DataFrame = Store.open(published(), create=False).outline(TIMED).to_pandas()
    return theirs


def _known(results: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of the rows that are there. Rows are read, not only listed, so a damaged one is run again."""
    if not results.joinpath("store.json").exists():
        return RUNS.empty_table().select(list(columns))
    return Store.open(results, create=False).outline(columns)
