"""What a command would do, and how long that would take."""

import heapq
from collections.abc import Iterator
from typing import Any

from synthbench.runner.plan import Job, Plan
from synthbench.runner.run import Prepared
from synthbench.terminal.layout import about
from synthbench.terminal.progress import to_do, workers_of


def missing_cells(plan: Plan) -> Iterator[str]:
    """One line for each task and mechanism that lacks rows: ``copy  slay  seeds 42, 43``."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for member in (member for job in plan.jobs for member in job.missing):
        of_cell = seeds.setdefault((member.cell.task_name, member.cell.mechanism_name), [])
        if member.seed not in of_cell:
            of_cell.append(member.seed)
    for (task, mechanism), cell_seeds in seeds.items():
        word = "seed" if len(cell_seeds) == 1 else "seeds"
        yield f"{task}  {mechanism}  {word} {', '.join(map(str, cell_seeds))}"


def missing_rows(plan: Plan) -> Iterator[str]:
    """One line for each missing row, with its id."""
    for fact in row_facts(plan):
        yield "  ".join("tuned" if value is None else str(value) for value in fact.values())


def row_facts(plan: Plan) -> list[dict[str, Any]]:
    """What is known of each missing row before it is run."""
    return [
        {
            "run_id": member.run_id,
            "task": member.cell.task_name,
            "mechanism": member.cell.mechanism_name,
            "seed": member.seed,
            "learning_rate": member.learning_rate,
        }
        for job in plan.jobs
        for member in job.missing
    ]


def facts_of(prepared: Prepared) -> dict[str, Any]:
    """A plan as JSON; seconds are null where nothing is known of the time."""
    plan = prepared.plan
    suite = plan.jobs[0].cells[0].suite.model_dump(mode="json") if plan.jobs else None
    return {
        "planned": plan.num_planned,
        "done": plan.num_done,
        "missing": row_facts(plan),
        "trainings": plan.num_trainings,
        "seconds": expected_s(plan, prepared.executor.num_workers),
        "executor": prepared.executor.name,
        "workers": prepared.executor.num_workers,
        "suite": suite,
    }


def forecast(prepared: Prepared) -> str:
    """``24 runs to do, 0 already done: 24 trainings, about 2 min on 2 workers``."""
    plan, executor = prepared.plan, prepared.executor
    there = f"{to_do(plan)}, {plan.num_done} already done"
    if not plan.num_missing:
        return there
    expected = expected_s(plan, executor.num_workers)
    trainings = f"{plan.num_trainings} training{'' if plan.num_trainings == 1 else 's'}"
    where = "in this process" if executor.name == "inline" else f"on {workers_of(executor)}"
    if expected is not None:
        return f"{there}: {trainings}, {about(expected)} {where}"
    untimed = f"no rows of device {prepared.device.type} in {prepared.request.results} yet"
    return f"{there}: {trainings} {where}; time unknown: {untimed}"


def expected_s(plan: Plan, num_workers: int | None) -> float | None:
    """Seconds until the last job ends, if each worker takes the next one; None where a job's time is unknown."""
    durations = [_job_s(plan, job) for job in plan.jobs]
    known = [duration for duration in durations if duration is not None]
    if len(known) < len(durations):
        return None
    free_at = [0.0] * (num_workers or 1)
    for duration in known:
        heapq.heapreplace(free_at, free_at[0] + duration)
    return max(free_at)


def _job_s(plan: Plan, job: Job) -> float | None:
    shares = [plan.estimates.seconds(member.cell) for member in job.trained]
    known = [share for share in shares if share is not None]
    return sum(known) if len(known) == len(shares) else None
