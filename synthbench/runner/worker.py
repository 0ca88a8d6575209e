"""Trains the runs of one job (the runs that a worker gets at once), and writes a row of results for each run."""

import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import torch

from synthbench.errors import ContractError
from synthbench.plugins import raise_interrupt, raised_at, reason, text_of
from synthbench.process import deterministic_algorithms, is_refused, settings_restored, usual_settings
from synthbench.results import Store
from synthbench.runner import held_out, seal
from synthbench.runner.plan import Job
from synthbench.runner.request import RunContext
from synthbench.runner.rows import Failure, Provenance, failure_row, row_and_curve, write_predictions
from synthbench.training.cell import Cell, Run
from synthbench.training.seeding import blocks_of
from synthbench.training.train import GroupResult, is_out_of_memory, train_group

INNERMOST = 20
"""Limit on the traceback frames that are shown; the frames nearest to the error are kept."""


class OutOfMemoryBesideOthers(Exception):  # noqa: N818 - not an error: the job is tried again without the others
    """Memory ran out for a single run while other workers used part of the same memory."""


@dataclass(frozen=True)
class RunOutcome:
    """The result of one run, as reported to the driver (the process of the command)."""

    run_id: str
    task: str
    mechanism: str
    seed: int
    status: str
    score: float | None
    skill: float | None
    share_s: float
    """Wall-clock seconds of the job, divided by the number of runs in its batch."""
    learning_rate: float | None = None
    message: str | None = None
    trace: str | None = None
    """Traceback, if something was raised."""


def execute(job: Job, context: RunContext, number: int) -> list[RunOutcome]:
    """Train the runs of a job, and write a row of results for each run that has none yet.

    If the suite tunes learning rates, the runs that serve to choose the rate are trained first. If a mechanism raises
    an exception, rows with a failure status are written. If memory runs out, half as many runs are trained together,
    down to one. Process settings, such as random generators, are restored at the end.

    Args:
        job: The job; its plugins are already loaded in this process.
        context: Settings of the command.
        number: Number of this try at the job, counted from 1.

    Raises:
        StoreError: If a row cannot be written; no partial file is left behind.
        UsageError: If deterministic results are required, but this process cannot guarantee them any more.
        OutOfMemoryBesideOthers: If even a single run does not fit into memory beside other workers.
    """
    with settings_restored(), usual_settings(torch.device(context.device).type):
        cell = job.cells[0]  # what is read of it here is the same for all cells
        provenance = Provenance(
            context,
            number,
            queue_s=max(0.0, time.time() - context.planned_at),
            # A notebook may have switched it on itself.
            is_deterministic=context.is_deterministic or torch.are_deterministic_algorithms_enabled(),
        )
        tried = _Worker(job, provenance)
        broken = context.violations.get(cell.mechanism_name) or replaced_code(job)
        if broken is not None:
            return tried.fail(job.runs, job, Failure("contract", "ContractError", broken))
        tried.provenance = replace(tried.provenance, causal_checked=True)
        with deterministic_algorithms(tried.provenance.device) if context.is_deterministic else nullcontext():
            if cell.suite.tuning is not None:
                job = job.with_rates(tried.tuned_rates(job))
            return tried.train_all(job)


def record_failure(job: Job, failure: Failure, context: RunContext, number: int) -> list[RunOutcome]:
    """Write a row with the failure's status, such as ``timeout``, for every run in ``job.missing``."""
    provenance = Provenance(context, number, is_deterministic=context.is_deterministic)
    return _Worker(job, provenance).fail(job.runs, job, failure)


def outcome_of(row: Mapping[str, Any]) -> RunOutcome:
    """Make the outcome of a run from its row of results."""
    return RunOutcome(
        run_id=row["run_id"],
        task=row["task"],
        mechanism=row["mech"],
        seed=row["seed"],
        status=row["status"],
        score=row["score"],
        skill=row["skill"],
        share_s=row["wall_s"] / row["ensemble_size"],
        learning_rate=row["lr"],
        message=row["error_message"],
    )


class _Worker:
    """Trains the runs of a job, and writes their rows."""

    def __init__(self, job: Job, provenance: Provenance) -> None:
        self.provenance = provenance
        self.context = context = provenance.context
        self.store = Store.open(held_out.folder_of(job, context.results, context.driver), create=True)

    def tuned_rates(self, job: Job) -> dict[Cell, float]:
        """Choose the learning rate of each cell (task × mechanism) by the highest mean skill on validation sequences.

        A run without a score has skill 0 here. If rates tie, the smallest is chosen.
        """
        untuned = job.untuned
        trained = self.train_all(replace(job, runs=untuned, missing=untuned))
        skill_by_id = {outcome.run_id: outcome.skill for outcome in trained}
        skills = {**job.tuning_skills, **{run: skill_by_id[run.run_id] for run in untuned}}
        by_rate: dict[Cell, dict[float, list[float]]] = {cell: {} for cell in job.cells}
        for run, skill in skills.items():
            skills_at_rate = by_rate[run.cell].setdefault(float(run.learning_rate or 0), [])
            skills_at_rate.append(0.0 if skill is None else skill)
        # Summed in the order of the runs, as for the committed rows, so that ties stay ties.
        return {
            cell: max(sorted(rates), key=lambda rate: sum(rates[rate]) / len(rates[rate]))
            for cell, rates in by_rate.items()
        }

    def train_all(self, job: Job) -> list[RunOutcome]:
        """Train each group of runs in which a row is missing; a group trains as one program and is timed by itself."""
        outcomes = []
        for group in job.groups:
            self.provenance = replace(self.provenance, started_at=datetime.now(UTC), began=time.monotonic())
            outcomes += self.train(group, job)
        return outcomes

    def train(self, runs: Sequence[Run], job: Job) -> list[RunOutcome]:
        """Train runs as one program and write their rows; if training fails, try again with fewer runs at once."""
        device = self.provenance.device
        try:
            result = train_group(
                runs,
                device,
                keeps_predictions=self.context.predictions is not None,
                kept=blocks_of(self.context.driver, device.type),
                on_trained=partial(held_out.answer, runs=runs, folder=self.store.root, device=device),
            )
        except BaseException as problem:  # noqa: BLE001 - a mechanism may raise anything; its row records it
            raise_interrupt(problem)
            trace = "".join(traceback.format_exception(problem, limit=-INNERMOST))
            failure = Failure(_status_of(problem), type(problem).__name__, _message(problem, runs[0].cell), trace)
        else:
            replaced = replaced_code(job)
            if replaced is None:
                return self.record(result, job)
            failure = Failure("contract", "ContractError", replaced)
        # Here the exception is gone, and with it the tensors that its traceback kept alive.
        if failure.status == "oom" and device.type == "cuda":
            torch.cuda.empty_cache()  # cached pieces of the larger attempt
        if parts := _parts(runs, failure):
            return [outcome for part in parts for outcome in self.train(part, job)]
        if failure.status == "oom" and not self.context.is_alone:
            raise OutOfMemoryBesideOthers(failure.message)
        return self.fail(runs, job, failure)

    def record(self, result: GroupResult, job: Job) -> list[RunOutcome]:
        """Write the row, learning curve and predictions of each run whose row is missing."""
        missing = [index for index, trained in enumerate(result.runs) if trained.run in job.missing]
        runs = [row_and_curve(result, index, self.provenance) for index in missing]
        if self.context.predictions is not None:
            for index in missing:  # before the rows, which say that the runs are finished
                write_predictions(self.context.predictions, result.runs[index])
        self.store.write_all(runs)
        return [outcome_of(row) for row, _ in runs]

    def fail(self, runs: Sequence[Run], job: Job, failure: Failure) -> list[RunOutcome]:
        """Write a row that records the failure, for each run whose row is missing."""
        missing = [index for index, run in enumerate(runs) if run in job.missing]
        is_causal = self.provenance.causal_checked and failure.status != "contract"
        provenance = replace(self.provenance, causal_checked=is_causal)
        rows = [failure_row(runs, index, failure, provenance) for index in missing]
        self.store.write_all((row, []) for row in rows)
        return [replace(outcome_of(row), trace=failure.trace) for row in rows]


def replaced_code(job: Job) -> str | None:
    """Return a message that names the training code that a job's plugins have replaced; None if they replaced none."""
    return seal.replaced() if any(map(held_out.is_foreign, job.cells)) else None


def _parts(runs: Sequence[Run], failure: Failure) -> list[Sequence[Run]]:
    """Split runs that failed as one program: in halves if memory ran out, otherwise by cell (task × mechanism).

    The result is empty if the runs cannot be split.
    """
    if failure.status == "oom":
        half = len(runs) // 2
        return [runs[:half], runs[half:]] if half else []
    cells = list(dict.fromkeys(run.cell for run in runs))
    return [[run for run in runs if run.cell is cell] for cell in cells] if len(cells) > 1 else []


def _message(problem: BaseException, cell: Cell) -> str:
    """Describe an exception for a row, beginning with the line of the plugin that led to it.

    The line comes first because the end of a long message is cut off.
    """
    places = (raised_at(problem, unit) for unit in (cell.mechanism, type(cell.task)))
    place = next(filter(None, places), None)
    text = text_of(problem)
    if " " not in text:  # such as the key of a KeyError, or nothing
        text = reason(problem)
    return f"{place}: {text}" if place else text


def _status_of(problem: BaseException) -> Literal["contract", "oom", "unsupported", "error"]:
    if isinstance(problem, ContractError):
        return "contract"
    if is_out_of_memory(problem):
        return "oom"
    return "unsupported" if is_refused(problem) else "error"
