"""One set of rules for what is tried again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthbench.errors import ContractError, StoreError, SynthbenchError, UsageError
from synthbench.results import Store
from synthbench.runner.executors.base import MAX_ATTEMPTS, JobEvent, Try, WorkerLost, end_of
from synthbench.runner.plan import Job
from synthbench.runner.worker import Circumstances, Outcome


@pytest.fixture
def job(make_cell: Callable[..., Any]) -> Job:
    cell = make_cell()
    members = tuple(cell.members([0, 1]))
    return Job(cell, members, members, group_size=1)


@pytest.fixture
def circumstances(tmp_path: Path) -> Circumstances:
    return Circumstances(results=tmp_path, device="cpu", executor="pool", planned_at=time.time())


def raises(problem: Exception) -> Callable[[], list[Outcome]]:
    def result() -> list[Outcome]:
        raise problem

    return result


def test_what_a_worker_says_is_what_became_of_a_job(job: Job, circumstances: Circumstances) -> None:
    assert end_of(Try(job, 1), list, circumstances) == JobEvent(job, [])
    assert not circumstances.results.joinpath("runs").exists()


def test_a_job_whose_worker_died_is_tried_again_until_it_was_the_last_time(
    job: Job, circumstances: Circumstances
) -> None:
    attempt = Try(job, 1)
    for number in range(2, MAX_ATTEMPTS + 1):
        end = end_of(attempt, raises(WorkerLost("exit code -9")), circumstances)
        assert end == Try(job, number)
        attempt = Try(job, number)
    end = end_of(attempt, raises(WorkerLost("exit code -9")), circumstances)

    assert isinstance(end, JobEvent)
    rows = Store.open(circumstances.results, create=False).runs()
    assert sorted(rows.run_id) == sorted(job.cell.run_id(member) for member in job.members)
    assert set(rows.error_message) == {"its worker died 3 times, exit code -9"}
    assert set(rows.attempt) == {3}


@pytest.mark.parametrize(
    ("problem", "status", "error_type"),
    [
        (TimeoutError("killed after 3 s"), "timeout", "JobTimeout"),
        (ContractError("'mine' is broken"), "contract", "ContractError"),
        (UsageError("no plugin file '/mine.py'"), "contract", "UsageError"),
        (WorkerLost("the memory of its machine was full", "oom"), "oom", "WorkerDied"),
    ],
)
def test_a_failure_is_a_row_with_its_status(
    problem: Exception, status: str, error_type: str, job: Job, circumstances: Circumstances
) -> None:
    end = end_of(Try(job, MAX_ATTEMPTS), raises(problem), circumstances)

    assert isinstance(end, JobEvent)
    assert [outcome.status for outcome in end.outcomes] == [status, status]
    rows = Store.open(circumstances.results, create=False).runs()
    assert set(rows.status) == {status}
    assert set(rows.error_type) == {error_type}
    assert rows.error_message.str.contains(str(problem), regex=False).all()


def test_rows_that_cannot_be_written_end_the_command(job: Job, circumstances: Circumstances) -> None:
    problem: SynthbenchError = StoreError("the disk is full")
    with pytest.raises(StoreError, match="the disk is full"):
        end_of(Try(job, 1), raises(problem), circumstances)
