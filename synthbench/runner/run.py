"""Runs what is missing: the one function behind ``synthbench run`` and :func:`synthbench.run`."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import torch

from synthbench import plugins
from synthbench.blocks import BLOCKS
from synthbench.contract.verdicts import Verdict, violation
from synthbench.errors import ContractError, UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.positions import POSITIONS
from synthbench.results import Store
from synthbench.results.schema import RUNS
from synthbench.runner.config import Cell
from synthbench.runner.determinism import reserve_workspace
from synthbench.runner.environment import resolve_device
from synthbench.runner.estimates import TIMED, Estimates
from synthbench.runner.executors import Executor, Inline, Pool
from synthbench.runner.match import matched, parse_match, reference_of, size_of
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
from synthbench.runner.selection import Selection, parse_term
from synthbench.runner.slots import VISIBLE, Slot, gpu_slots
from synthbench.runner.stream import TOKENS_AT_ONCE
from synthbench.runner.vetting import REGISTRIES, Subject, Trial, record, vet
from synthbench.runner.worker import Circumstances, Outcome
from synthbench.suites import Suite, load_suite
from synthbench.tasks import TASKS

GPU_GROUP_SIZE = 64
"""Members that a GPU trains as one program: its steps are bound by launches, not by work."""

RERUNS = ("none", "failed", "all")

BEYOND = ("ray", "slurm")
"""Executors that run jobs on other machines."""
EXECUTORS = ("auto", "inline", "pool", *BEYOND)

CONTRACT = "contract"
"""Folder in that of the results, with what the contract says of units that do not come with synthbench."""


@dataclass(frozen=True)
class Request:
    """What a user asks for; every field is an option of ``synthbench run``."""

    suite: str = "paper"
    tasks: Sequence[str] = ("all",)
    mechanisms: Sequence[str] = ()
    """Empty: those that the suite names."""
    seeds: Sequence[int] = ()
    """Empty: those of the suite."""
    block: str | None = None
    """None: the suite's."""
    positions: str | None = None
    """None: the suite's."""
    match: str | None = None
    """``params`` or ``state``, with a number or that of the suite's first mechanism: what all are given alike."""
    device: str = "auto"
    steps: int | None = None
    limit: int | None = None
    results: Path = Path("results")
    executor: str = "auto"
    address: str | None = None
    """Of a Ray cluster that is running, or ``local`` to try the slurm executor out."""
    workers: int | None = None
    per_gpu: int | None = None
    """Processes that share a GPU; None: one."""
    timeout_s: float | None = None
    group_size: int | None = None
    rerun: str = "none"
    deterministic: bool = False
    """Deterministic algorithms only; a row that was made without counts as missing."""
    shard: str | None = None
    """``2/3``: of three parts of the plan the second."""
    plugins: Sequence[str] = ()
    """Files and modules whose units are used besides those of synthbench and of installed packages."""


@dataclass(repr=False)
class RunReport:
    """What became of a request."""

    results: Path
    run_ids: Sequence[str]
    """Of all planned rows."""
    num_done_before: int
    outcomes: list[Outcome] = field(default_factory=list)
    wall_s: float = 0.0
    is_interrupted: bool = False

    def __repr__(self) -> str:
        counts = f"{len(self.outcomes)} rows written, {self.num_done_before} were there, {len(self.failed)} failed"
        return f"RunReport({self.num_planned} planned: {counts}, {self.wall_s:.1f} s)"

    @property
    def num_planned(self) -> int:
        """Rows that there should be."""
        return len(self.run_ids)

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
        """Whether every planned row is there, those of this run all with a score."""
        return not self.failed and not self.is_interrupted


def device_of(request: Request) -> torch.device:
    """The device that a request names; that of a cluster need not be on this machine.

    Raises:
        UsageError: If there is no such device.
    """
    if request.executor in BEYOND and request.device == "cuda":
        return torch.device("cuda")
    return resolve_device(request.device)


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
    known = _known(request.results, ("run_id", "skill", "deterministic", *TIMED))
    rows = zip(*(known[name].to_pylist() for name in ("run_id", "skill", "status", "deterministic")), strict=True)
    done = {
        run_id: skill
        for run_id, skill, status, is_deterministic in rows
        if (request.rerun == "none" or (request.rerun == "failed" and status == "ok"))
        and (is_deterministic or not request.deterministic)
    }

    def group_size(cell: Cell) -> int:
        return request.group_size or default_group_size(cell)

    return make_plan(cells, seeds, done, group_size, Estimates(known.select(list(TIMED)).to_pandas()))


def default_group_size(cell: Cell) -> int:
    """Members of a cell that train as one program; it depends on nothing but the cell."""
    if cell.device_type == "cuda":
        return GPU_GROUP_SIZE
    return max(1, TOKENS_AT_ONCE["cpu"] // (cell.suite.training.batch_size * cell.length))


def progress_of(request: Request, device: torch.device) -> list[dict[str, Any]]:
    """How many rows of a request are there, failed and missing: one entry a category, and one for all.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store exists and cannot be read.
    """
    cells, seeds = _requested(request, device)
    known = _known(request.results, ("run_id", "status"))
    statuses = dict(zip(*(column.to_pylist() for column in known.itercolumns()), strict=True))
    counts: dict[str, Counter[str]] = {}
    for cell in cells:
        found = [statuses.get(cell.run_id(member), "missing") for member in cell.members(seeds)]
        for group in (cell.task.category(), "all"):
            counts.setdefault(group, Counter()).update(found)
    counts["all"] = counts.pop("all")  # last
    return [
        {
            "category": group,
            "planned": count.total(),
            "done": count["ok"],
            "failed": count.total() - count["ok"] - count["missing"],
            "missing": count["missing"],
        }
        for group, count in counts.items()
    ]


def _requested(request: Request, device: torch.device) -> tuple[list[Cell], Sequence[int]]:
    plugins.load(request.plugins)
    suite, tasks, mechanisms = _selected(request)
    shorter = shortened(suite, steps=request.steps, limit=request.limit)
    cells = make_cells(
        shorter,
        tasks,
        mechanisms,
        device_type=device.type,
        is_full=shorter == suite,
    )
    if request.match is not None:
        quantity, target = parse_match(request.match)
        cells = [matched(cell, quantity, target or size_of(reference_of(cell), quantity)) for cell in cells]
    if request.shard is not None:
        cells = in_shard(cells, *parse_shard(request.shard))
    return cells, list(request.seeds) or suite.seeds


def _selected(request: Request) -> tuple[Suite, Selection, Selection]:
    """The suite, its tasks and the mechanisms that a request names; units of packages are not imported yet."""
    suite = surrounded(load_suite(request.suite), block=request.block, positions=request.positions)
    return (
        suite,
        select_tasks(suite, request.tasks),
        select_mechanisms(suite, list(request.mechanisms) or [",".join(suite.mechanisms)]),
    )


def foreign_subjects(request: Request) -> list[Subject]:
    """The units of a request that do not come with synthbench, with the arguments that they are used with.

    Raises:
        UsageError: If a name or a suite is not allowed.
    """
    suite, tasks, mechanisms = _selected(request)
    around = [(kind, *parse_term(term)) for kind, term in _around(suite)]
    used: list[tuple[str, str, Mapping[str, Any]]] = [
        *((TASKS.kind, name, {**suite.tasks[name], **given}) for name, given in tasks.items()),
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
    device = device_of(request)
    if request.deterministic:
        reserve_workspace(device)
    request = replace(request, plugins=[plugins.resolved(plugin) for plugin in request.plugins])
    findings = vetted(request)
    plan = plan_request(request, device)
    is_in_session = any(subject.is_in_session for subject in findings)
    executor = make_executor(request, plan, device, is_foreign=bool(findings), is_in_session=is_in_session)
    Store.open(request.results, create=True)
    record(findings, request.results / CONTRACT)
    report = RunReport(request.results, plan.run_ids, plan.num_done)
    on_plan(plan, executor)
    circumstances = Circumstances(
        results=request.results.absolute(),
        device=str(device),
        executor=executor.name,
        planned_at=time.time(),
        plugins=request.plugins,
        violations={
            subject.name: broken
            for subject, verdicts in findings.items()
            if subject.kind == MECHANISMS.kind and (broken := violation(verdicts)) is not None
        },
        is_deterministic=request.deterministic,
    )
    for event in executor.run(plan.jobs, circumstances, stop):
        for outcome in event.outcomes:
            report.outcomes.append(outcome)
            on_outcome(outcome)
    report.is_interrupted = len(report.outcomes) < plan.num_missing
    report.wall_s = time.monotonic() - began
    return report


def make_executor(
    request: Request, plan: Plan, device: torch.device, *, is_foreign: bool = False, is_in_session: bool = False
) -> Executor:
    """The executor that a request names; ``auto`` is inline for up to two jobs or on a GPU, else a process a core.

    On GPUs it is inline only where there is one, with one process: else a process for each share of each.

    It is never a cluster, whatever the environment says of one: that must be asked for.

    Args:
        request: What names it, and the number of workers and their time.
        plan: What there is to do.
        device: Where.
        is_foreign: Whether a unit does not come with synthbench: ``auto`` keeps it out of this process.
        is_in_session: Whether a unit was defined in a notebook or a script, so that no other process has it.

    Raises:
        UsageError: If the name or a number is not allowed.
    """
    _check_choice(request, device)
    slots = _slots(request, device)
    needs_pool = any(wish is not None for wish in (request.workers, request.timeout_s, request.per_gpu))
    if is_in_session and (needs_pool or request.executor in ("pool", *BEYOND)):
        raise UsageError(
            "a unit was defined in this session, where worker processes do not find it; "
            "save it to a file and name that in plugins, or use the inline executor"
        )
    is_small = is_in_session or (not is_foreign and (len(plan.jobs) <= 2 or len(slots) == 1))
    if request.executor == "inline" or (request.executor == "auto" and is_small and not needs_pool):
        if needs_pool:
            raise UsageError("workers and timeout need worker processes, which the inline executor has not")
        return Inline()
    if request.executor in BEYOND:
        return _beyond_this_machine(request)
    return Pool(len(slots) or request.workers or usable_cores(), request.timeout_s, slots=slots)


def _check_choice(request: Request, device: torch.device) -> None:
    """Refuse an executor that does not exist, and numbers and addresses that it has no use for.

    Raises:
        UsageError: If something is not allowed.
    """
    if request.executor not in EXECUTORS:
        raise UsageError(f"executor is {request.executor!r}; allowed: {', '.join(EXECUTORS)}")
    if request.workers is not None and request.workers < 1:
        raise UsageError(f"workers is {request.workers}; allowed: 1 and more")
    if request.timeout_s is not None and not request.timeout_s > 0:
        raise UsageError(f"timeout is {request.timeout_s}; allowed: more than 0 seconds")
    if request.address is not None and request.executor not in BEYOND:
        raise UsageError(f"address is {request.address!r}; allowed with the executors {' and '.join(BEYOND)} only")
    if request.per_gpu is not None and (device.type != "cuda" or request.executor in ("inline", "slurm")):
        where = f"device {device.type} and executor {request.executor}"
        raise UsageError(f"processes per GPU are {request.per_gpu} with {where}; allowed: on GPUs, with pool or ray")
    if request.per_gpu is not None and request.per_gpu < 1:
        raise UsageError(f"processes per GPU are {request.per_gpu}; allowed: 1 and more")


def _slots(request: Request, device: torch.device) -> list[Slot]:
    """Where worker processes of this machine run on its GPUs; none on a CPU.

    Raises:
        UsageError: If a number is not allowed.
    """
    if device.type != "cuda" or request.executor in ("inline", *BEYOND):
        return []
    return gpu_slots(
        device,
        request.per_gpu or 1,
        num_gpus=torch.cuda.device_count(),
        visible=os.environ.get(VISIBLE),
        num_workers=request.workers,
    )


def _beyond_this_machine(request: Request) -> Executor:
    """The executor of a cluster; its package is an extra.

    Raises:
        UsageError: If the package is not installed, or the address is not allowed.
    """
    try:
        if request.executor == "ray":
            from synthbench.runner.executors.ray import Ray  # noqa: PLC0415 - may be missing

            here = usable_cores() if request.address is None else None
            return Ray(request.workers or here, request.timeout_s, request.address, 1 / (request.per_gpu or 1))
        from synthbench.runner.executors.slurm import Slurm  # noqa: PLC0415 - may be missing

        return Slurm(request.workers, request.timeout_s, request.address or "slurm")
    except ModuleNotFoundError as problem:
        raise UsageError(
            f"executor {request.executor!r} needs the package {problem.name}, which is not installed; in a checkout: "
            f"pip install -e '.[{request.executor}]'"
        ) from None


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _known(results: Path, columns: Sequence[str]) -> pa.Table:
    """Some columns of the rows that are there. Rows are read, not only listed, so a damaged one is run again."""
    if not results.joinpath("store.json").exists():
        return RUNS.empty_table().select(list(columns))
    return Store.open(results, create=False).outline(columns)
