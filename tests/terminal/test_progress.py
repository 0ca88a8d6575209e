from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from synthbench.results import Store
from synthbench.runner.executors import Inline, Pool
from synthbench.runner.plan import Job, Plan, make_cells
from synthbench.runner.worker import RunOutcome
from synthbench.suites import load_suite
from synthbench.terminal.progress import Progress, to_do, workers_of
from synthbench.training.cell import Cell, Member


@pytest.fixture
def results(tmp_path: Path) -> Path:
    Store.open(tmp_path, create=True)
    return tmp_path


@pytest.fixture
def cells() -> list[Cell]:
    return make_cells(
        load_suite("smoke"), {"copy": {}, "reverse": {}}, {"softmax": {}, "slay": {}}, device_type="cpu", is_full=True
    )


@pytest.fixture
def progress(cells: list[Cell], results: Path) -> Iterator[Progress]:
    members = {cell: tuple(cell.members([0, 1])) for cell in cells}
    jobs = tuple(Job((cell,), of_cell, of_cell, group_size=2) for cell, of_cell in members.items())
    with Progress(results) as progress:
        progress.begin(Plan(jobs, num_planned=9, num_done=1), Pool(num_workers=2))
        yield progress


def tuned_job() -> Job:
    (cell,) = make_cells(load_suite("peers"), {"mqar": {}}, {"linear": {}}, device_type="cpu", is_full=True)
    members = tuple(cell.members([0, 1, 2]))
    return Job((cell,), members, members, group_size=2)


def outcome(member: Member, share_s: float) -> RunOutcome:
    cell = member.cell
    return RunOutcome(member.run_id, cell.task_name, cell.mechanism_name, member.seed, "ok", 0.5, 0.4, share_s)


def test_lines_go_to_stderr(progress: Progress, cells: list[Cell], capsys: pytest.CaptureFixture[str]) -> None:
    progress.advance(outcome(cells[0].members([0])[0], 100.0))
    captured = capsys.readouterr()

    assert captured.out == ""
    assert captured.err == "[rows 1/8 · about 6 min left] copy softmax seed 0 ok 0.5000\n"


def test_notices_of_a_plan_come_before_its_rows(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(results) as progress:
        progress.begin(Plan((), num_planned=1, num_done=1, notices=("first [this]", "then that")), Pool(num_workers=2))

    assert capsys.readouterr().err.splitlines()[-2:] == ["first [this]", "then that"]


def test_nothing_is_said_of_the_time_before_something_is_known(
    progress: Progress, capsys: pytest.CaptureFixture[str]
) -> None:
    progress._line("still running")

    assert capsys.readouterr().err.splitlines()[-1] == "[rows 0/8] still running"


def test_trainings_that_tune_are_counted_while_their_job_runs(
    results: Path, make_row: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    job = tuned_job()
    with Progress(results) as progress:
        progress.begin(Plan((job,), num_planned=3, num_done=0), Pool(num_workers=1))
        row = make_row(run_id=job.untuned[0].run_id, task="mqar", mech="linear", role="tuning", wall_s=600.0)
        Store.open(results, create=True).write(row, [])
        progress.look()
        progress._line("still running")

    first, last = capsys.readouterr().err.splitlines()
    assert first == "3 runs to do after 2 tuning runs, 0 already done (1 worker)"
    assert last == "[trainings 1/5 · rows 0/3 · about 40 min left] still running"


def test_what_is_to_do_and_where() -> None:
    assert to_do(Plan((), 3, 3)) == "0 runs to do"
    assert to_do(Plan((tuned_job(),), 3, 0)) == "3 runs to do after 2 tuning runs"
    assert workers_of(Inline()) == "in this process"
    assert workers_of(Pool(num_workers=1)) == "1 worker"
