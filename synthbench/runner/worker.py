"""What a worker does with a job: train, write the rows, say what became of each. The driver only watches."""

import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import torch

from synthbench import plugins
from synthbench.contract.mechanisms import check_causality
from synthbench.errors import ContractError
from synthbench.mechanisms import Mechanism
from synthbench.places import raised_at
from synthbench.process import deterministic_algorithms, is_refused, settings_restored
from synthbench.results import Store
from synthbench.runner import predictions
from synthbench.runner.plan import Job
from synthbench.runner.rows import Failure, Provenance, curve_points, failure_row, member_row
from synthbench.training.cell import Cell, Member
from synthbench.training.kept import streams_of
from synthbench.training.train import GroupResult, train_group

INNERMOST = 20
"""Frames of a traceback that are told: those nearest to what raised."""


@dataclass(frozen=True)
class RunContext:
    """What is the same for every job of a command."""

    results: Path
    device: str
    executor: str
    planned_at: float
    """``time.time()`` when the plan was made."""
    plugins: Sequence[str] = ()
    """What a worker process loads before it looks for a unit."""
    violations: Mapping[str, str] = field(default_factory=dict)
    """The promise that a mechanism breaks, by name, of those that do not come with synthbench."""
    is_deterministic: bool = False
    """Whether nothing may be computed in a way that can give other bits the next time."""
    is_alone: bool = True
    """Whether no other worker uses the memory of the device at the same time."""
    predictions: Path | None = None
    """Folder for what models predict in the test; None: nobody wants to know."""
    driver: str = field(default_factory=lambda: uuid4().hex[:8])
    """Tells the logs of this command from those of another one that runs on the same store at the same time.

    It is not host and process id: two containers may share both, and a store does not name hosts.
    """


class OutOfMemoryBesideOthers(Exception):  # noqa: N818 - not an error: the job is tried again without the others
    """Memory ran out for a single member, while other workers had some of it."""


@dataclass(frozen=True)
class Outcome:
    """What became of one member, for whoever watches."""

    run_id: str
    task: str
    mechanism: str
    seed: int
    status: str
    score: float | None
    skill: float | None
    share_s: float
    """Wall seconds of the job over the members that it trained together."""
    message: str | None = None
    trace: str | None = None
    """Traceback of what was raised; None where nothing was."""


def execute(job: Job, context: RunContext, number: int) -> list[Outcome]:
    """Train the members of a job and write the rows that are missing, those of the tuning first.

    Whatever a mechanism raises becomes a row with a status. Out of memory halves the members that train together until
    one is left. Settings of the process that a mechanism or a task changes are put back.

    Raises:
        StoreError: If a row cannot be written; nothing is left half done.
        ContractError: If a plugin cannot be loaded in this process.
        UsageError: If the numbers are to be the same every time, and this process cannot promise it any more.
        OutOfMemoryBesideOthers: If the memory does not suffice for a single member beside the other workers.
    """
    plugins.load(context.plugins)
    with settings_restored():
        return _execute(job, context, number)


def _execute(job: Job, context: RunContext, number: int) -> list[Outcome]:
    provenance = replace(
        provenance_of(context, number),
        queue_s=max(0.0, time.time() - context.planned_at),
        # A notebook may have asked for it by itself.
        is_deterministic=context.is_deterministic or torch.are_deterministic_algorithms_enabled(),
    )
    provenance = replace(provenance, kept=streams_of(context.driver, provenance.device.type))
    store = Store.open(context.results, create=True)
    cell = job.cells[0]  # what is looked at here is the same for all
    violation = context.violations.get(cell.mechanism_name) or _causality_violation(cell)
    if violation is not None:
        return record_failure(job, Failure("contract", "ContractError", violation), provenance, store)
    provenance = replace(provenance, causal_checked=True)
    with deterministic_algorithms(provenance.device) if context.is_deterministic else nullcontext():
        if cell.suite.tuning is not None:
            job = job.at_rates(_tuned_rates(job, provenance, store))
        return _train_groups(job, provenance, store)


def _train_groups(job: Job, provenance: Provenance, store: Store) -> list[Outcome]:
    """Train those groups of a job's members of which a row is missing, each on its own clock."""
    outcomes = []
    for group in job.groups:
        begun = replace(provenance, started_at=datetime.now(UTC), began=time.monotonic())
        outcomes += _train(job, group, begun, store)
    return outcomes


def _tuned_rates(job: Job, provenance: Provenance, store: Store) -> dict[Cell, float]:
    """Each cell's learning rate with the highest mean skill on validation sequences; the smallest of those that tie.

    A member without a score counts as one at the floor.
    """
    outcomes = _train_groups(replace(job, members=job.untuned, missing=job.untuned), provenance, store)
    skill_by_id = {outcome.run_id: outcome.skill for outcome in outcomes}
    skills = {**job.tuning_skills, **{member: skill_by_id[member.run_id] for member in job.untuned}}
    by_rate: dict[Cell, dict[float, list[float]]] = {cell: {} for cell in job.cells}
    for member, skill in skills.items():
        of_rate = by_rate[member.cell].setdefault(float(member.learning_rate or 0), [])
        of_rate.append(0.0 if skill is None else skill)
    # Summed in the order of the members: committed rows were tuned so, and a tie must stay one.
    return {
        cell: max(sorted(rates), key=lambda rate: sum(rates[rate]) / len(rates[rate]))
        for cell, rates in by_rate.items()
    }


def record_failure(job: Job, failure: Failure, provenance: Provenance, store: Store) -> list[Outcome]:
    """Write a row with the failure's status for every missing member of a job."""
    return _fail(job, job.members, failure, provenance, store)


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """What a member's row says for whoever watches."""
    return Outcome(
        run_id=row["run_id"],
        task=row["task"],
        mechanism=row["mech"],
        seed=row["seed"],
        status=row["status"],
        score=row["score"],
        skill=row["skill"],
        share_s=row["wall_s"] / row["ensemble_size"],
        message=row["error_message"],
    )


def provenance_of(context: RunContext, number: int) -> Provenance:
    """A try at a job that begins now: what is known of it, whoever asks."""
    return Provenance(
        device=torch.device(context.device),
        executor=context.executor,
        number=number,
        queue_s=0.0,
        causal_checked=False,
        started_at=datetime.now(UTC),
        began=time.monotonic(),
        is_deterministic=context.is_deterministic,
        is_alone=context.is_alone,
        predictions=context.predictions,
    )


def _train(job: Job, members: Sequence[Member], provenance: Provenance, store: Store) -> list[Outcome]:
    try:
        keeps_predictions = provenance.predictions is not None
        result = train_group(members, provenance.device, keeps_predictions=keeps_predictions, kept=provenance.kept)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - a mechanism may raise anything; its row says what
        trace = "".join(traceback.format_exception(problem, limit=-INNERMOST))
        failure = Failure(_status_of(problem), type(problem).__name__, _message(problem, members[0].cell), trace)
    else:
        return _record(job, result, provenance, store)
    # Out here the exception is gone, and with it the tensors that its traceback held.
    if failure.status == "oom" and provenance.device.type == "cuda":
        torch.cuda.empty_cache()  # pieces that were cut for the larger try
    if parts := _parts(members, failure):
        return [outcome for part in parts for outcome in _train(job, part, provenance, store)]
    if failure.status == "oom" and not provenance.is_alone:
        raise OutOfMemoryBesideOthers(failure.message)
    return _fail(job, members, failure, provenance, store)


def _parts(members: Sequence[Member], failure: Failure) -> list[Sequence[Member]]:
    """What is tried apart after members failed together: halves where memory ran out, else cells; none of one."""
    if failure.status == "oom":
        half = len(members) // 2
        return [members[:half], members[half:]] if half else []
    cells = list(dict.fromkeys(member.cell for member in members))
    return [[member for member in members if member.cell is cell] for cell in cells] if len(cells) > 1 else []


def _record(job: Job, result: GroupResult, provenance: Provenance, store: Store) -> list[Outcome]:
    missing = [index for index, trained in enumerate(result.members) if trained.member in job.missing]
    rows = [member_row(result, index, provenance) for index in missing]
    curves = [curve_points(result.members[index]) for index in missing]
    if provenance.predictions is not None:
        for index in missing:  # before the rows, which say that the runs are finished
            predictions.write(provenance.predictions, result.members[index])
    store.write_all(zip(rows, curves, strict=True))
    return [outcome_of(row) for row in rows]


def _fail(job: Job, members: Sequence[Member], failure: Failure, provenance: Provenance, store: Store) -> list[Outcome]:
    missing = [index for index, member in enumerate(members) if member in job.missing]
    rows = [failure_row(members, index, failure, provenance) for index in missing]
    store.write_all((row, []) for row in rows)
    return [replace(outcome_of(row), trace=failure.trace) for row in rows]


def _causality_violation(cell: Cell) -> str | None:
    """What the probe of causality found in the cell's mechanism; once a process and mechanism."""
    return _probe(cell.mechanism, tuple(sorted(cell.mechanism_arguments.items())))


@lru_cache(maxsize=256)
def _probe(unit: type[Mechanism], arguments: tuple[tuple[str, object], ...]) -> str | None:
    try:
        check_causality(unit, dict(arguments))
    except ContractError as problem:
        return str(problem)
    return None


def _message(problem: BaseException, cell: Cell) -> str:
    """What a row says of an exception: the plugin's line first, if one led to it, since long messages are cut."""
    places = (raised_at(problem, unit) for unit in (cell.mechanism, type(cell.task)))
    place = next(filter(None, places), None)
    return f"{place}: {problem}" if place else str(problem)


def _status_of(problem: BaseException) -> Literal["oom", "unsupported", "error"]:
    if _is_out_of_memory(problem):
        return "oom"
    return "unsupported" if is_refused(problem) else "error"


def _is_out_of_memory(problem: BaseException) -> bool:
    # On a CPU a failed allocation is a plain RuntimeError.
    return isinstance(problem, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(problem)
