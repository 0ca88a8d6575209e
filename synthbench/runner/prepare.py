"""From a request to a plan and an executor: everything that happens before the first job. Nothing is written here."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from synthbench import plugins
from synthbench.blocks import BLOCKS
from synthbench.contract.trial import REGISTRIES, Subject, Trial, vet
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
from synthbench.runner.environment import commit_warning, resolve_device
from synthbench.runner.estimates import TIMED, Estimates
from synthbench.runner.executors import Executor
from synthbench.runner.executors.choice import BEYOND, make_executor
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
from synthbench.suites import EXTRA, Suite, load_suite
from synthbench.tasks import TASKS
from synthbench.terms import Selection
from synthbench.training.cell import Cell

RERUNS = ("none", "failed", "all")

_DECISIVE = ("run_id", "skill", "status", "deterministic", "task_code_hash", "mech_code_hash")
"""Columns that decide whether a row counts as done."""

_READ = tuple(dict.fromkeys((*_DECISIVE, *TIMED, "finished_at")))

CONTRACT = "contract"
"""Folder beside the rows with the contract's findings on components that do not come with synthbench."""

Findings = dict[Subject, list[Verdict]]


@dataclass(frozen=True)
class Prepared:
    """A request that can be run: its plan and what runs it."""

    request: Request
    device: torch.device
    findings: Findings
    """The contract's findings on the components that do not come with synthbench."""
    plan: Plan
    executor: Executor


def prepare(request: Request) -> Prepared:
    """Check a request, plan it and choose its executor, without a change to the store.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store cannot be read, or there can be none at its place.
        ContractError: If a plugin cannot be loaded, or a component of one cannot be built.
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


def device_of(request: Request) -> torch.device:
    """The device that a request names; that of a cluster need not be on this machine.

    Raises:
        UsageError: If there is no such device.
    """
    if request.executor in BEYOND and request.device == "cuda":
        return torch.device("cuda")
    return resolve_device(request.device)


# The contract comes first: foreign code is imported in a process of its own before it is imported here.


def vetted(request: Request) -> Findings:
    """Check the contract of the components that do not come with synthbench.

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


def foreign_subjects(request: Request) -> list[Subject]:
    """The components of a request that do not come with synthbench, with the arguments they are used with.

    Raises:
        UsageError: If a name or a suite is not allowed.
    """
    suite, tasks, mechanisms = _selected(request)
    model = suite.model
    around = [(BLOCKS.kind, model.block), (POSITIONS.kind, model.positions)]
    if model.positions_otherwise is not None:
        around.append((POSITIONS.kind, model.positions_otherwise))
    used: list[tuple[str, str, Mapping[str, Any]]] = [
        *((TASKS.kind, name, {**suite.tasks.get(name, {}), **given}) for name, given in tasks.items()),
        *((MECHANISMS.kind, name, {**suite.mechanisms.get(name, {}), **given}) for name, given in mechanisms.items()),
        *((kind, *parse_term(term)) for kind, term in around),
    ]
    return [
        Subject(kind, name, arguments)
        for kind, name, arguments in used
        if name in REGISTRIES[kind] and not REGISTRIES[kind].is_built_in(name)
    ]


# Then the plan: the cells that the request names, less the rows that the store has.


def plan_request(request: Request, device: torch.device) -> Plan:
    """Plan a request: what it names, and what of it is missing in the store.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store exists and cannot be read.
    """
    if request.rerun not in RERUNS:
        raise UsageError(f"rerun is {request.rerun!r}; allowed: {', '.join(RERUNS)}")
    if request.group_size is not None and request.group_size < 1:
        raise UsageError(f"group size is {request.group_size}; allowed: 1 and more")
    cells, seeds = _cells_and_seeds(request, device)
    known = RUNS.empty_table().select(list(_READ))
    if request.results.joinpath("store.json").exists():
        # Rows are read, not only listed, so a damaged one is run again.
        known = Store.open(request.results, create=False).outline(_READ)
    done, scored = _done(request, cells, known)
    timed = known.select(list(TIMED))
    if device.type not in timed["device_type"].to_pylist():
        timed = Store.open(published(), create=False).outline(TIMED)
    plan = make_plan(
        cells,
        seeds,
        done,
        request.group_size,
        is_across_tasks=request.group_size is not None or device.type == "cuda",
        estimates=Estimates(timed.to_pandas()),
    )
    scored = [run_id for run_id in scored if run_id in plan.members]
    num_failed = plan.num_done - len(scored)
    notices = [*_on_extra_tasks(cells, request.results), *_on_predictions(scored, request.predictions)]
    if (warning := commit_warning()) is not None:
        notices.append(warning)
    if num_failed:
        notices.append(f"{num_failed} of the rows already done failed; --rerun failed makes them again")
    finished_at = dict(zip(known["run_id"].to_pylist(), known["finished_at"].to_pylist(), strict=True))
    replaced = [finished_at[run_id] for run_id in plan.members if run_id in finished_at and run_id not in done]
    return replace(plan, num_failed=num_failed, replaced_at=max(replaced, default=None), notices=tuple(notices))


def _done(request: Request, cells: Sequence[Cell], known: pa.Table) -> tuple[dict[str, float | None], list[str]]:
    """Skill by run id of the stored rows that need no run, and the ids of those with a score."""
    sources = {(cell.code["task"], cell.code["mech"]) for cell in cells}
    done: dict[str, float | None] = {}
    scored = []
    for run_id, skill, status, is_deterministic, *source in zip(
        *(known[name].to_pylist() for name in _DECISIVE), strict=True
    ):
        if request.rerun == "all" or (request.deterministic and not is_deterministic):
            continue
        if status == "ok":
            scored.append(run_id)
        # A failure counts as long as the code that failed is here: what was mended gets another chance.
        elif request.rerun == "failed" or (tuple(source) not in sources and None not in source):
            continue
        done[run_id] = skill
    return done, scored


def progress_of(request: Request, device: torch.device) -> list[dict[str, Any]]:
    """Count the rows of a request that are done, failed and missing: one entry a category, and one for all.

    Raises:
        UsageError: If a name, argument or value is not allowed.
        StoreError: If the store exists and cannot be read.
    """
    cells, seeds = _cells_and_seeds(request, device)
    planned = ((cell.task.category(), [member.run_id for member in cell.members(seeds)]) for cell in cells)
    return tally(planned, statuses_in(request.results))


def _cells_and_seeds(request: Request, device: torch.device) -> tuple[list[Cell], Sequence[int]]:
    plugins.load(request.plugins)
    suite, tasks, mechanisms = _selected(request)
    if suite.ladder is not None and request.predictions is not None:
        raise UsageError(
            f"predictions is {str(request.predictions)!r}; allowed: none in suite {suite.name!r}, whose models are "
            "tested on many rungs"
        )
    shorter = shortened(suite, steps=request.steps, limit=request.limit)
    cells = make_cells(shorter, tasks, mechanisms, device_type=device.type, is_full=shorter == suite)
    if request.only is not None:
        cells = [cell for cell in cells if (cell.task_name, cell.mechanism_name) in request.only]
    if request.match is not None:
        cells = all_matched(cells, request.match)
    if request.shard is not None:
        cells = in_shard(cells, *parse_shard(request.shard))
    return cells, list(request.seeds) or suite.seeds


def _selected(request: Request) -> tuple[Suite, Selection, Selection]:
    """The suite, its tasks and the mechanisms that a request names; no component of a package is imported yet."""
    suite = surrounded(load_suite(request.suite.removesuffix(EXTRA)), block=request.block, positions=request.positions)
    tasks = select_tasks(suite, request.tasks)
    if request.suite.endswith(EXTRA) and (listed := [name for name in tasks if name in suite.tasks]):
        raise UsageError(
            f"task {listed[0]!r} is one of suite {suite.name!r}; allowed in {request.suite!r}: registered tasks that "
            f"{suite.name!r} does not list, named one by one"
        )
    return suite, tasks, select_mechanisms(suite, list(request.mechanisms) or [",".join(suite.mechanisms)])


def _on_predictions(scored: Sequence[str], folder: Path | None) -> Iterator[str]:
    """Say how many of the rows that need no run lack predictions, if these are asked for."""
    missing = [run_id for run_id in scored if folder and not predictions.path_of(folder, run_id).exists()]
    if missing:
        yield f"{len(missing)} of the rows already done have no predictions in {folder}; --rerun all makes them"


def _on_extra_tasks(cells: Sequence[Cell], results: Path) -> Iterator[str]:
    """Name the tasks that a suite does not list, and the command that shows their tables; none shows shortened runs."""
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
