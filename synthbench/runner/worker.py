"""What a worker does with a job: train, write the rows, say what became of each. The driver only watches."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from synthbench import plugins
from synthbench.contract.mechanisms import check_causality
from synthbench.errors import ContractError
from synthbench.mechanisms import Mechanism
from synthbench.results import Store
from synthbench.runner.config import Cell, Member
from synthbench.runner.containment import settings_restored
from synthbench.runner.determinism import deterministic_algorithms, is_refused
from synthbench.runner.plan import Job
from synthbench.runner.rows import Attempt, Failure, curve_points, failure_row, member_row
from synthbench.runner.train import CellResult, train_cell


@dataclass(frozen=True)
class Circumstances:
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


class Crowded(Exception):  # noqa: N818 - not an error: the job is tried again without the others
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


def execute(job: Job, circumstances: Circumstances, number: int) -> list[Outcome]:
    """Train the members of a job and write the rows that are missing, those of the tuning first.

    Whatever a mechanism raises becomes a row with a status. Out of memory halves the members that train together until
    one is left. Settings of the process that a mechanism or a task changes are put back.

    Raises:
        StoreError: If a row cannot be written; nothing is left half done.
        ContractError: If a plugin cannot be loaded in this process.
        UsageError: If the numbers are to be the same every time, and this process cannot promise it any more.
        Crowded: If the memory does not suffice for a single member beside the other workers.
    """
    plugins.load(circumstances.plugins)
    with settings_restored():
        return _execute(job, circumstances, number)


def _execute(job: Job, circumstances: Circumstances, number: int) -> list[Outcome]:
    attempt = replace(
        attempt_of(circumstances, number),
        queue_s=max(0.0, time.time() - circumstances.planned_at),
        # A notebook may have asked for it by itself.
        is_deterministic=circumstances.is_deterministic or torch.are_deterministic_algorithms_enabled(),
    )
    store = Store.open(circumstances.results, create=True)
    violation = circumstances.violations.get(job.cell.mechanism_name) or _causality_violation(job.cell)
    if violation is not None:
        return record_failure(job, Failure("contract", "ContractError", violation), attempt, store)
    attempt = replace(attempt, causal_checked=True)
    with deterministic_algorithms(attempt.device) if circumstances.is_deterministic else nullcontext():
        if job.cell.suite.tuning is not None:
            job = job.at_rate(_tuned_rate(job, attempt, store))
        return _train_groups(job, attempt, store)


def _train_groups(job: Job, attempt: Attempt, store: Store) -> list[Outcome]:
    """Train those groups of a job's members of which a row is missing, each on its own clock."""
    outcomes = []
    for group in job.groups:
        begun = replace(attempt, started_at=datetime.now(UTC), began=time.monotonic())
        outcomes += _train(job, group, begun, store)
    return outcomes


def _tuned_rate(job: Job, attempt: Attempt, store: Store) -> float:
    """The learning rate with the highest mean skill on validation sequences; the smallest of several that tie.

    A member without a score counts as one at the floor.
    """
    outcomes = _train_groups(replace(job, members=job.untuned, missing=job.untuned), attempt, store)
    skills = {**job.tuning_skills, **dict(zip(job.untuned, (outcome.skill for outcome in outcomes), strict=True))}
    by_rate: dict[float, list[float]] = {}
    for member, skill in skills.items():
        by_rate.setdefault(float(member.learning_rate or 0), []).append(0.0 if skill is None else skill)
    return max(sorted(by_rate), key=lambda rate: sum(by_rate[rate]) / len(by_rate[rate]))


def record_failure(job: Job, failure: Failure, attempt: Attempt, store: Store) -> list[Outcome]:
    """Write a row with the failure's status for every missing member of a job."""
    return _fail(job, job.members, failure, attempt, store)


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


def attempt_of(circumstances: Circumstances, number: int) -> Attempt:
    """A try at a job that begins now: what is known of it, whoever asks."""
    return Attempt(
        device=torch.device(circumstances.device),
        executor=circumstances.executor,
        number=number,
        queue_s=0.0,
        causal_checked=False,
        started_at=datetime.now(UTC),
        began=time.monotonic(),
        is_deterministic=circumstances.is_deterministic,
        is_alone=circumstances.is_alone,
    )


def _train(job: Job, members: Sequence[Member], attempt: Attempt, store: Store) -> list[Outcome]:
    cell = job.cell
    try:
        result = train_cell(cell, members, attempt.device)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - a mechanism may raise anything; its row says what
        failure = Failure(_status_of(problem), type(problem).__name__, str(problem))
    else:
        return _record(job, members, result, attempt, store)
    # Out here the exception is gone, and with it the tensors that its traceback held.
    if failure.status == "oom":
        if attempt.device.type == "cuda":
            torch.cuda.empty_cache()  # pieces that were cut for the larger try
        if len(members) > 1:
            half = len(members) // 2
            return [part for group in (members[:half], members[half:]) for part in _train(job, group, attempt, store)]
        if not attempt.is_alone:
            raise Crowded(failure.message)
    return _fail(job, members, failure, attempt, store)


def _record(job: Job, members: Sequence[Member], result: CellResult, attempt: Attempt, store: Store) -> list[Outcome]:
    outcomes = []
    for index, trained in enumerate(result.members):
        if trained.member in job.missing:
            row = member_row(job.cell, members, result, index, attempt)
            store.write(row, curve_points(job.cell, trained))
            outcomes.append(outcome_of(row))
    return outcomes


def _fail(job: Job, members: Sequence[Member], failure: Failure, attempt: Attempt, store: Store) -> list[Outcome]:
    outcomes = []
    for index, member in enumerate(members):
        if member in job.missing:
            row = failure_row(job.cell, members, index, failure, attempt)
            store.write(row, [])
            outcomes.append(outcome_of(row))
    return outcomes


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


def _status_of(problem: BaseException) -> Literal["oom", "unsupported", "error"]:
    if _is_out_of_memory(problem):
        return "oom"
    return "unsupported" if is_refused(problem) else "error"


def _is_out_of_memory(problem: BaseException) -> bool:
    # On a CPU a failed allocation is a plain RuntimeError.
    return isinstance(problem, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(problem)
