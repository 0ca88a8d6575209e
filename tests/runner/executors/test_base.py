"""One set of rules for what is tried again."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from synthbench.errors import ContractError, StoreError, UsageError
from synthbench.results import Store
from synthbench.runner.executors.base import (
    MAX_TRIES,
    JobDone,
    Try,
    WorkerExecutor,
    WorkerLost,
    end_of,
    log_of_job,
    work,
)
from synthbench.runner.plan import Job
from synthbench.runner.request import RunContext
from synthbench.runner.worker import OutOfMemoryBesideOthers, RunOutcome, execute
from tests.runner.runs import job_of
from tests.training.cells import make_cell


@pytest.fixture
def job() -> Job:
    return replace(job_of(make_cell()), group_size=1)


@pytest.mark.end_to_end
def test_what_was_finished_before_the_time_was_up_stays(job: Job, context: RunContext) -> None:
    first, second = job.runs
    (done,) = execute(replace(job, runs=(first,), missing=(first,)), context, number=1)
    end = end_of(Try(job, 1), Mock(side_effect=TimeoutError("killed after 3 s")), context)

    assert isinstance(end, JobDone)
    assert [(outcome.run_id, outcome.status) for outcome in end.outcomes] == [
        (done.run_id, "ok"),
        (second.run_id, "timeout"),
    ]
    assert end.outcomes[0] == done
    assert Store.open(context.results, create=False).statuses() == {
        outcome.run_id: outcome.status for outcome in end.outcomes
    }
    later = replace(context, planned_at=time.time())  # asked for again, as by --rerun all
    end_of(Try(job, 1), Mock(side_effect=TimeoutError("killed after 3 s")), later)
    assert set(Store.open(context.results, create=False).statuses().values()) == {"timeout"}


@pytest.mark.parametrize(
    ("problem", "number", "status", "error_type"),
    [
        (TimeoutError("killed after 3 s"), 1, "timeout", "JobTimeout"),
        (ContractError("'mine' is broken"), 1, "contract", "ContractError"),
        (UsageError("no plugin file '/mine.py'"), 1, "contract", "UsageError"),
        (WorkerLost("exit code -9"), MAX_TRIES, "error", "WorkerDied"),
        (WorkerLost("the memory of its machine was full", "oom"), MAX_TRIES, "oom", "WorkerDied"),
    ],
)
def test_a_failure_is_a_row_with_its_status_at_once_or_after_the_last_try(
    problem: Exception, number: int, status: str, error_type: str, job: Job, context: RunContext
) -> None:
    end = end_of(Try(job, number), Mock(side_effect=problem), context)

    assert isinstance(end, JobDone)
    assert [outcome.status for outcome in end.outcomes] == [status, status]
    rows = Store.open(context.results, create=False).runs()
    assert sorted(rows.run_id) == sorted(run.run_id for run in job.runs)
    assert (set(rows.status), set(rows.error_type), set(rows.attempt)) == ({status}, {error_type}, {number})
    message = f"its worker died 3 times, {problem}" if number == 3 else str(problem)
    assert rows.error_message.str.startswith(message).all()


def test_rows_that_cannot_be_written_end_the_command(job: Job, context: RunContext) -> None:
    with pytest.raises(StoreError, match="the disk is full"):
        end_of(Try(job, 1), Mock(side_effect=StoreError("the disk is full")), context)


def test_a_machine_without_the_results_a_plugin_or_the_code_of_the_driver_refuses_a_job(
    job: Job, context: RunContext, tmp_path: Path
) -> None:
    Store.open(context.results, create=True)
    log = log_of_job(job, context)
    elsewhere = replace(context, results=tmp_path / "elsewhere")

    with pytest.raises(StoreError, match="no such folder; all machines must see this folder"):
        work(Try(job, 1), elsewhere, log)
    assert not elsewhere.results.exists()
    with pytest.raises(UsageError, match=r"no plugin file '/not/here\.py'"):
        work(Try(job, 1), replace(context, plugins=("/not/here.py",)), log)
    with pytest.raises(ContractError, match="has another version of synthbench, or of what it runs, than the driver"):
        work(Try(job, 1), context, log.with_name("other.log"))
    job.cells[0].code["mech"] = "of another source"
    with pytest.raises(ContractError, match="has another version"):
        work(Try(job, 1), context, log)


class Scripted(WorkerExecutor[int]):
    """Two workers in this process, whose jobs end as a script says: what is raised for each job, by its group size."""

    num_workers = 2

    def __init__(self, script: dict[int, list[Exception]]) -> None:
        self.script = script
        self.seen: list[tuple[int, bool]] = []
        """Count the jobs that ran at once, and whether that one was to be alone, at every end."""

    @contextmanager
    def workers(self, context: RunContext) -> Iterator[None]:
        self.context = context
        self.begun: list[Try] = []
        yield

    def capacity(self) -> int:
        return 2

    def begin(self, attempt: Try) -> int:
        self.begun.append(attempt)
        return len(self.begun) - 1

    def withdraw(self, handle: int) -> bool:
        return handle % 2 == 1

    def ended(self, handles: Iterable[int]) -> list[int]:
        running = sorted(handles)
        self.seen.append((len(running), self.context.is_alone))
        return running[:1]

    def result(self, handle: int) -> list[RunOutcome]:
        script = self.script.get(self.begun[handle].job.group_size, [])
        if script:
            raise script.pop(0)
        return []


@pytest.fixture
def jobs(job: Job) -> list[Job]:
    return [replace(job, group_size=size) for size in range(1, 8)]


def test_no_more_jobs_are_begun_than_keep_the_workers_busy_and_all_end(jobs: list[Job], context: RunContext) -> None:
    executor = Scripted({3: [WorkerLost("exit code -9"), WorkerLost("exit code -9")]})
    events = list(executor.run(jobs, context, lambda: False))

    assert sorted(event.job.group_size for event in events) == [1, 2, 3, 4, 5, 6, 7]
    assert [attempt.number for attempt in executor.begun if attempt.job == jobs[2]] == [1, 2, 3]
    assert executor.seen == [(num, False) for num in (4, 4, 4, 4, 4, 3, 2, 2, 1)]


def test_what_is_too_crowded_runs_last_and_alone(jobs: list[Job], context: RunContext) -> None:
    executor = Scripted({1: [OutOfMemoryBesideOthers("no memory")], 6: [OutOfMemoryBesideOthers("no memory")]})
    events = list(executor.run(jobs, context, lambda: False))

    assert [event.job.group_size for event in events[:5]] == [2, 3, 4, 5, 7]
    assert {event.job.group_size for event in events[5:]} == {1, 6}
    assert executor.seen[-2:] == [(1, True), (1, True)]
    assert not any(is_alone for _, is_alone in executor.seen[:-2])


def test_a_stop_takes_back_what_has_not_begun_and_waits_for_the_rest(jobs: list[Job], context: RunContext) -> None:
    stop = threading.Event()
    events = []
    for event in Scripted({}).run(jobs, context, stop.is_set):
        events.append(event)
        stop.set()

    assert [event.job.group_size for event in events] == [1, 3]  # nobody had begun 2 and 4
