from pathlib import Path
from typing import Any

import pytest

from synthbench.cli.running import expected_s, forecast, missing_cells, plan_facts
from synthbench.results import Store
from synthbench.runner import plan as plan_module
from synthbench.runner.estimates import cost_columns
from synthbench.runner.plan import make_cells, make_plan
from synthbench.runner.request import Request
from synthbench.runner.run import prepare
from synthbench.suites import load_suite
from synthbench.training.cell import Cell
from tests.cli.commands import MakeRow
from tests.results.stores import filled
from tests.runner.runs import Known


@pytest.fixture
def cells() -> list[Cell]:
    return make_cells(load_suite("smoke"), {"copy": {}, "reverse": {}}, {"linear": {}}, device_type="cpu", is_full=True)


def request(results: Path, **changes: Any) -> Request:
    return Request(
        suite="smoke", tasks=["copy,reverse"], mechanisms=["linear"], device="cpu", results=results, **changes
    )


def test_one_line_a_cell_names_the_seeds_that_are_missing(cells: list[Cell]) -> None:
    done = {cells[1].runs([1])[0].run_id: 0.5}
    plan = make_plan(cells, [0, 1], done, 1)

    assert sorted(missing_cells(plan)) == ["copy  linear  seeds 0, 1", "reverse  linear  seed 0"]


def test_workers_share_the_jobs_and_no_time_is_invented(cells: list[Cell]) -> None:
    seconds = {"copy": 5.0, "reverse": 2.0}
    known = make_plan(cells, [0, 1], {}, 1, estimates=Known(lambda cell: seconds[cell.task_name]))
    unknown = make_plan(cells, [0, 1], {}, 1, estimates=Known(lambda cell: 5.0 if cell.task_name == "copy" else None))

    assert [expected_s(known, num_workers) for num_workers in (1, 2, 9, None)] == [14.0, 7.0, 5.0, 14.0]
    assert expected_s(unknown, 1) is None


def test_the_forecast_counts_trainings_and_says_what_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(tmp_path / "published", create=True)
    monkeypatch.setattr(plan_module, "published", lambda: tmp_path / "published")
    prepared = prepare(request(tmp_path / "new", workers=3))

    assert forecast(prepared) == (
        "4 runs to do, 0 already done: 4 trainings on 3 workers; "
        f"time unknown: no rows of device cpu in {tmp_path / 'new'} yet"
    )
    assert plan_facts(prepared)["seconds"] is None
    assert not (tmp_path / "new").exists()


def test_before_there_are_rows_of_the_device_the_time_is_that_of_the_published_ones(tmp_path: Path) -> None:
    prepared = prepare(request(tmp_path / "new"))
    seconds = plan_facts(prepared)["seconds"]

    assert seconds is not None
    assert 0 < seconds < 3600


def test_the_forecast_says_the_time_that_rows_of_the_cell_took(tmp_path: Path, make_row: MakeRow) -> None:
    prepared = prepare(request(tmp_path))
    runs = prepared.plan.runs.values()
    filled(tmp_path, (make_row(**cost_columns(run.cell), seed=run.seed + 50, wall_s=600.0) for run in runs))
    timed = prepare(request(tmp_path, workers=2))

    assert forecast(timed) == "4 runs to do, 0 already done: 4 trainings, about 20 min on 2 workers"
    assert plan_facts(timed)["seconds"] == pytest.approx(1200.0)


def test_what_is_done_needs_no_time(tmp_path: Path, make_row: MakeRow) -> None:
    filled(tmp_path, (make_row(run_id=run_id) for run_id in prepare(request(tmp_path / "new")).plan.runs))

    assert forecast(prepare(request(tmp_path))) == "0 runs to do, 4 already done"
