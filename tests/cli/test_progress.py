"""Progress of a command as it prints it: before it trains, while it trains, and at the end."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from synthbench.cli.progress import Eta, Progress
from synthbench.cli.running import expected_s, forecast, plan_facts
from synthbench.cli.scores import Scored, report_command, skill_table, skill_text
from synthbench.results import Store
from synthbench.runner import plan as plan_module
from synthbench.runner.estimates import cost_columns
from synthbench.runner.executors import Pool
from synthbench.runner.plan import Job, Plan, make_cells, make_plan
from synthbench.runner.run import prepare
from synthbench.runner.worker import RunOutcome
from synthbench.suites import load_suite
from synthbench.training.cell import Cell, Run
from tests.results.rows import make_row
from tests.results.stores import filled
from tests.runner.runs import Known, job_of, tiny
from tests.training.cells import make_cell


def cells_of(
    *mechanisms: str, suite: str = "smoke", tasks: Sequence[str] = ("copy", "reverse"), is_full: bool = True
) -> list[Cell]:
    chosen, named = ({name: dict[str, str]() for name in names} for names in (tasks, mechanisms))
    return make_cells(load_suite(suite), chosen, named, device_type="cpu", is_full=is_full)


@pytest.fixture
def cells() -> list[Cell]:
    """Of three mechanisms, two of them of one family, on two tasks."""
    return cells_of("softmax", "yat", "yat-sum")


@pytest.fixture
def tuned_job() -> Job:
    """Three runs whose learning rate two others choose."""
    return job_of(*cells_of("linear", suite="peers", tasks=["mqar"]), seeds=(0, 1, 2))


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
def test_what_a_mechanism_took_corrects_its_own_estimates_and_those_of_mechanisms_without_a_row(
    is_timed: bool,  # noqa: FBT001
    cells: list[Cell],
) -> None:
    eta = eta_of(cells, is_timed=is_timed)
    runs = {(cell.task_name, cell.mechanism_name): cell.runs([0])[0] for cell in cells}

    assert eta.left_s() == (4 * (1 + 2 + 3) if is_timed else None)
    eta.record(outcome(runs["copy", "softmax"], 5.0))  # five times its estimate, so all are
    assert eta.left_s() == pytest.approx(3 * 5 + 5 * 4 * (2 + 3))
    eta.record(outcome(runs["copy", "yat"], 4.0))  # it is only twice as slow, and both together are three times
    assert eta.left_s() == pytest.approx(3 * 5 + 3 * 4 + 3 * 4 * 3)


def test_a_failure_says_nothing_of_other_runs(cells: list[Cell]) -> None:
    eta = eta_of(cells)
    eta.record(outcome(cells[0].runs([0])[0], 0.01, "error"))

    assert eta.left_s() == pytest.approx(3 * 1 + 4 * (2 + 3))


def test_runs_that_only_tune_end_with_the_rows_of_their_job(tuned_job: Job) -> None:
    plan = Plan((tuned_job,), 3, 0, estimates=Known(cost_of))
    eta, num_tuning = Eta(plan), len(tuned_job.untuned)

    assert eta.num_trainings == plan.num_trainings == 3 + num_tuning
    assert eta.left_s() == pytest.approx(2.0 * (3 + num_tuning))
    for run in tuned_job.runs:
        eta.record(outcome(run, 5.0))
    assert (eta.num_left, eta.left_s()) == (0, 0)


def test_what_trains_again_beside_a_missing_row_counts_with_it(cells: list[Cell]) -> None:
    job = job_of(cells[0], num_done=1)
    eta = Eta(Plan((job,), 2, 1))

    assert eta.num_trainings == 2
    for _ in range(2):  # a job that a cluster starts again is reported twice
        eta.record(outcome(job.runs[1], 1.0))
    assert eta.num_left == 0


def test_lines_go_to_stderr_and_say_no_time_before_something_is_known(
    cells: list[Cell], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress() as progress:
        progress.begin(Plan(tuple(map(job_of, cells)), num_planned=13, num_done=1), Pool(num_workers=2))
        progress._line("still running")
        progress.advance(outcome(cells[0].runs([0])[0], 100.0))
    captured = capsys.readouterr()

    assert captured.out == ""
    assert captured.err.splitlines()[-2:] == [
        "[rows 0/12] still running",
        "[rows 1/12 · about 9 min left] copy softmax seed 0 rate 0.01 ok 0.5000",
    ]


def test_trainings_that_tune_are_counted_beside_the_rows_below_the_notices_of_the_plan(
    tuned_job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress() as progress:
        plan = Plan((tuned_job,), num_planned=3, num_done=0, notices=("first [this]", "then that"))
        progress.begin(plan, Pool(num_workers=1))
        for run in tuned_job.runs[:2]:
            progress.advance(outcome(run, 600.0))

    first, *notices, _, last = capsys.readouterr().err.splitlines()
    assert notices == ["first [this]", "then that"]
    assert first == "3 runs to do after 2 tuning runs, 0 already done (1 worker)"
    assert last.startswith("[trainings 3/5 · rows 2/3 · about 17 min left] mqar linear seed 1 ")


request = partial(tiny, tasks=("copy,reverse",), steps=None, limit=None)


def test_workers_share_the_jobs_and_no_time_is_invented() -> None:
    def planned(**seconds: float) -> Plan:
        estimates = Known(lambda cell: seconds.get(cell.task_name))
        return make_plan(cells_of("softmax"), [0, 1], {}, 1, estimates=estimates)

    known = planned(copy=5.0, reverse=2.0)
    assert [expected_s(known, num_workers) for num_workers in (1, 2, 9, None)] == [14.0, 7.0, 5.0, 14.0]
    assert expected_s(planned(copy=5.0), 1) is None


def test_the_forecast_counts_trainings_and_names_the_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tmp_path / "published", create=True)
    monkeypatch.setattr(plan_module, "published", lambda: tmp_path / "published")
    prepared = prepare(request(tmp_path / "new", workers=3))

    assert forecast(prepared) == (
        "4 runs to do, 0 already done: 4 trainings on 3 workers; "
        f"time unknown: no rows of device cpu in {tmp_path / 'new'} yet"
    )
    assert plan_facts(prepared)["seconds"] is None
    assert not (tmp_path / "new").exists()


def test_the_forecast_says_the_time_that_rows_of_the_cell_took(tmp_path: Path) -> None:
    prepared = prepare(request(tmp_path))
    runs = prepared.plan.runs.values()
    filled(tmp_path, (make_row(**cost_columns(run.cell), seed=run.seed + 50, wall_s=600.0) for run in runs))
    timed = prepare(request(tmp_path, workers=2))

    assert forecast(timed) == "4 runs to do, 0 already done: 4 trainings, about 20 min on 2 workers"
    assert plan_facts(timed)["seconds"] == pytest.approx(1200.0)


def test_what_is_done_needs_no_time(tmp_path: Path) -> None:
    filled(tmp_path, (make_row(run_id=run_id) for run_id in prepare(request(tmp_path / "new")).plan.runs))

    assert forecast(prepare(request(tmp_path))) == "0 runs to do, 4 already done"


OK = Scored("ok", 0.5)


def runs_of(*mechanisms: str, is_full: bool = True) -> dict[str, Run]:
    """Two seeds of two tasks of suite smoke."""
    return {run.run_id: run for cell in cells_of(*mechanisms, is_full=is_full) for run in cell.runs([42, 43])}


def fill(results: Path, runs: dict[str, Run], **statuses: str) -> None:
    """Write a row for each run: skill 0.5 for seed 42 and 0.7 for 43, or the status of its mechanism."""
    for run_id, run in runs.items():
        status = statuses.get(run.cell.mechanism_name, "ok")
        score = {"score": 0.25 + 0.75 * (0.5 + 0.2 * (run.seed - 42))} if status == "ok" else {"score": None}
        names = {"task": run.cell.task_name, "mech": run.cell.mechanism_name}
        filled(results, [make_row(run_id=run_id, seed=run.seed, status=status, **names, **score)])


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ([OK, Scored("ok", 0.7)], "0.60 ±0.14"),
        ([OK], "0.50"),
        ([OK, None, None], "0.50 (1 of 3)"),
        ([OK, Scored("ok", 0.7), Scored("diverged", None)], "0.60 ±0.14 (2 of 3) diverged"),
        ([Scored("error", None), Scored("error", None)], "error"),
        ([None, None], "--"),
        ([Scored("ok", -0.5), Scored("ok", 1.5)], "0.50 ±0.71"),
        ([Scored("ok", None)], "no skill"),
    ],
)
def test_a_cell_says_what_its_runs_came_to(runs: list[Scored | None], text: str) -> None:
    assert skill_text(runs, has_spread=True) == text


def test_a_table_that_is_too_wide_loses_its_spread_then_its_last_columns(tmp_path: Path) -> None:
    runs = runs_of("linear", "gla", "softmax")
    fill(tmp_path, runs, gla="error")
    whole, narrow, narrower, narrowest = (
        skill_table(tmp_path, runs, width).splitlines() for width in (None, 32, 23, 5)
    )

    assert whole == [
        "skill    linear      gla    softmax",
        "copy     0.60 ±0.14  error  0.60 ±0.14",
        "reverse  0.60 ±0.14  error  0.60 ±0.14",
        "Skill: 0 at the floor, 1 at the ceiling; mean ± standard deviation over seeds.",
    ]
    assert narrow[:2] == ["skill    linear  gla    softmax", "copy     0.60    error  0.60"]
    assert narrower[0] == "skill    linear  gla"
    assert narrower[-1] == (
        "1 column does not fit into 23 characters; for all: synthbench export --suite smoke --mech linear,gla,softmax "
        f"--columns skill --across mechanisms --results {tmp_path}"
    )
    assert max(map(len, narrower[:3])) <= 23
    assert narrowest[0] == "skill    linear"


def test_a_row_for_each_learning_rate_where_a_suite_reports_several(tmp_path: Path) -> None:
    cell = make_cell("copy", "linear", suite="smoke", learning_rates=(1e-3, 1e-2))
    runs = {run.run_id: run for run in cell.runs([42, 43])}
    fill(tmp_path, runs)

    lines = skill_table(tmp_path, runs, None).splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["copy", "lr=0.001"], ["copy", "lr=0.01"]]


def test_a_seed_of_a_ladder_has_the_rate_that_its_validation_chooses(tmp_path: Path) -> None:
    (cell,) = cells_of("linear", suite="core", tasks=["mqar"])
    reached = {(1, 3e-3): (0.5, 0.2), (1, 1e-2): (0.4, 0.3), (2, 3e-3): (0.7, 0.2), (2, 1e-2): (0.9, 0.1)}
    runs = {run.run_id: run for run in cell.runs([1, 2])}
    for run_id, run in runs.items():
        skill, validation = reached[run.seed, run.learning_rate or 0.0]
        metrics = json.dumps({"validation_accuracy": validation})
        filled(tmp_path, [make_row(run_id=run_id, score=0.25 + 0.75 * skill, metrics=metrics)])

    assert skill_table(tmp_path, runs, None).splitlines()[1].split() == ["mqar", "0.55", "±0.21"]


@pytest.mark.parametrize(
    ("mechanisms", "results", "command"),
    [
        (["linear"], "my rows", "synthbench report --suite smoke --results 'my rows'"),
        (["linear", "gla"], "results", "synthbench report --suite smoke --mech linear,gla"),
    ],
)
def test_the_next_command_has_the_options_that_it_needs(mechanisms: list[str], results: str, command: str) -> None:
    assert report_command(Path(results), runs_of(*mechanisms)) == command
    assert report_command(Path(results), runs_of(*mechanisms, is_full=False)) is None
