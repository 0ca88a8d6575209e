from collections.abc import Iterator
from pathlib import Path

import pytest

from synthbench.cli.progress import Eta, Progress, Watch
from synthbench.results import Store
from synthbench.runner.executors import Pool
from synthbench.runner.plan import Job, Plan, make_cells
from synthbench.runner.worker import RunOutcome
from synthbench.suites import load_suite
from synthbench.training.cell import Cell, Run
from tests.cli.commands import MakeRow
from tests.runner.runs import Known


@pytest.fixture
def results(tmp_path: Path) -> Path:
    Store.open(tmp_path, create=True)
    return tmp_path


@pytest.fixture
def cells() -> list[Cell]:
    """Of three mechanisms, two of them of one family, on two tasks."""
    mechanisms: dict[str, dict[str, str]] = {"softmax": {}, "yat": {}, "yat-sum": {}}
    tasks: dict[str, dict[str, str]] = {"copy": {}, "reverse": {}}
    return make_cells(load_suite("smoke"), tasks, mechanisms, device_type="cpu", is_full=True)


def job_of(cell: Cell, seeds: tuple[int, ...] = (0, 1), num_done: int = 0) -> Job:
    """The runs of a cell as one program, the first of which are done."""
    runs = tuple(cell.runs(seeds))
    return Job((cell,), runs, runs[num_done:], group_size=2)


@pytest.fixture
def tuned_job() -> Job:
    """Three runs whose learning rate two others choose."""
    (cell,) = make_cells(load_suite("peers"), {"mqar": {}}, {"linear": {}}, device_type="cpu", is_full=True)
    return job_of(cell, (0, 1, 2))


def outcome(run: Run, share_s: float, status: str = "ok") -> RunOutcome:
    cell = run.cell
    return RunOutcome(run.run_id, cell.task_name, cell.mechanism_name, run.seed, status, 0.5, 0.4, share_s, 0.01)


COSTS = {"softmax": 1.0, "yat": 2.0, "yat-sum": 3.0, "linear": 2.0}
"""Estimated seconds of a run of each mechanism."""


def cost_of(cell: Cell) -> float:
    return COSTS[cell.mechanism_name]


def eta_of(cells: list[Cell], *, is_timed: bool = True) -> Eta:
    """The time left of two runs of each cell."""
    estimates = Known(lambda cell: cost_of(cell) if is_timed else None)
    estimates.cost = cost_of  # type: ignore[method-assign]
    return Eta(Plan(tuple(map(job_of, cells)), 12, 0, estimates=estimates))


@pytest.mark.parametrize("is_timed", [True, False])
def test_what_has_been_seen_corrects_the_nearest_most(
    is_timed: bool,  # noqa: FBT001
    cells: list[Cell],
) -> None:
    eta = eta_of(cells, is_timed=is_timed)
    runs = {(cell.task_name, cell.mechanism_name): cell.runs([0])[0] for cell in cells}

    assert eta.left_s() == (4 * (1 + 2 + 3) if is_timed else None)
    eta.record(outcome(runs["copy", "softmax"], 5.0))  # five times its cost, so all are
    assert eta.left_s() == pytest.approx(3 * 5 + 5 * 4 * (2 + 3))
    eta.record(outcome(runs["copy", "yat"], 4.0))  # the family is only twice as slow
    assert eta.left_s() == pytest.approx(3 * 5 + 3 * 4 + 2 * 4 * 3)
    eta.record(outcome(runs["reverse", "yat"], 8.0))  # the task takes longer, or something slowed down
    assert eta.left_s() == pytest.approx(3 * 5 + 1 * 4 + 1 * 8 + 3 * 4 * 3)


def test_a_failure_says_nothing_of_other_cells(cells: list[Cell]) -> None:
    eta = eta_of(cells)
    eta.record(outcome(cells[0].runs([0])[0], 0.01, "error"))

    assert eta.left_s() == pytest.approx(0.01 + 2 * 1 + 4 * (2 + 3))


def test_runs_that_only_tune_count_each_once_and_those_of_a_job_that_has_ended_no_more(tuned_job: Job) -> None:
    plan = Plan((tuned_job,), 3, 0, estimates=Known(cost_of))
    eta, num_tuning = Eta(plan), len(tuned_job.untuned)

    assert eta.num_trainings == plan.num_trainings == 3 + num_tuning
    assert eta.left_s() == 2.0 * (3 + num_tuning)
    for _ in range(2):
        eta.record(outcome(tuned_job.untuned[0], 5.0))
    assert (eta.num_left, eta.left_s()) == (2 + num_tuning, 5.0 * (2 + num_tuning))
    eta.record(outcome(tuned_job.runs[0], 0.1, "contract"), is_last=True)
    assert eta.num_left == 2


def test_what_trains_again_beside_a_missing_row_counts_with_it(cells: list[Cell]) -> None:
    job = job_of(cells[0], num_done=1)
    eta = Eta(Plan((job,), 2, 1))

    assert eta.num_trainings == 2
    eta.record(outcome(job.runs[1], 1.0), is_last=True)
    assert eta.num_left == 0


def test_only_rows_that_are_written_from_now_on_are_new_and_each_once(results: Path, make_row: MakeRow) -> None:
    store = Store.open(results, create=True)
    old, new, other = (make_row(seed=seed, role="tuning") for seed in range(3))
    store.write_all([(old, [])])
    watch = Watch(results, [old["run_id"], new["run_id"]])
    store.write_all([(new, [])])
    store.write_all([(other, [])])

    assert [(row.run_id, row.seed, row.share_s) for row in watch.new_rows()] == [(new["run_id"], 1, 2.5)]
    assert watch.new_rows() == []
    store.write_all([(make_row(seed=0, role="tuning", wall_s=3.5), [])])  # made again, in another time
    assert [row.run_id for row in watch.new_rows()] == [old["run_id"]]


@pytest.fixture
def progress(cells: list[Cell], results: Path) -> Iterator[Progress]:
    with Progress(results) as progress:
        progress.begin(Plan(tuple(map(job_of, cells)), num_planned=13, num_done=1), Pool(num_workers=2))
        yield progress


def test_lines_go_to_stderr_and_say_no_time_before_something_is_known(
    progress: Progress, cells: list[Cell], capsys: pytest.CaptureFixture[str]
) -> None:
    progress._line("still running")
    progress.advance(outcome(cells[0].runs([0])[0], 100.0))
    captured = capsys.readouterr()

    assert captured.out == ""
    assert captured.err.splitlines()[-2:] == [
        "[rows 0/12] still running",
        "[rows 1/12 · about 9 min left] copy softmax seed 0 rate 0.01 ok 0.5000",
    ]


def test_notices_of_a_plan_come_before_its_rows(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(results) as progress:
        progress.begin(Plan((), num_planned=1, num_done=1, notices=("first [this]", "then that")), Pool(num_workers=2))

    assert capsys.readouterr().err.splitlines()[-2:] == ["first [this]", "then that"]


def test_trainings_that_tune_are_counted_while_their_job_runs(
    results: Path, tuned_job: Job, make_row: MakeRow, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(results) as progress:
        progress.begin(Plan((tuned_job,), num_planned=3, num_done=0), Pool(num_workers=1))
        row = make_row(run_id=tuned_job.untuned[0].run_id, task="mqar", mech="linear", role="tuning", wall_s=600.0)
        Store.open(results, create=True).write_all([(row, [])])
        progress.look()
        progress._line("still running")

    first, last = capsys.readouterr().err.splitlines()
    assert first == "3 runs to do after 2 tuning runs, 0 already done (1 worker)"
    assert last == "[trainings 1/5 · rows 0/3 · about 40 min left] still running"
