import json
from pathlib import Path

import pytest

from synthbench.cli.scores import Scored, report_command, skill_table, skill_text
from synthbench.runner.plan import make_cells
from synthbench.suites import load_suite
from synthbench.training.cell import Run
from tests.cli.commands import MakeRow
from tests.results.stores import filled

OK = Scored("ok", 0.5)


def runs_of(*mechanisms: str, is_full: bool = True) -> dict[str, Run]:
    """Two seeds of two tasks of suite smoke."""
    tasks: dict[str, dict[str, str]] = {"copy": {}, "reverse": {}}
    cells = make_cells(
        load_suite("smoke"), tasks, {name: {} for name in mechanisms}, device_type="cpu", is_full=is_full
    )
    return {run.run_id: run for cell in cells for run in cell.runs([42, 43])}


def fill(results: Path, runs: dict[str, Run], make_row: MakeRow, **statuses: str) -> None:
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


def test_the_table_has_a_row_a_task_and_a_column_a_mechanism(tmp_path: Path, make_row: MakeRow) -> None:
    runs = runs_of("linear", "gla")
    fill(tmp_path, runs, make_row, gla="error")

    assert skill_table(tmp_path, runs, None).splitlines() == [
        "skill    linear      gla",
        "copy     0.60 ±0.14  error",
        "reverse  0.60 ±0.14  error",
        "Skill: 0 at the floor, 1 at the ceiling; mean ± standard deviation over seeds.",
    ]


def test_a_table_that_is_too_wide_loses_its_spread_then_its_last_columns(tmp_path: Path, make_row: MakeRow) -> None:
    runs = runs_of("linear", "gla", "softmax")
    fill(tmp_path, runs, make_row)
    narrow, narrower, narrowest = (skill_table(tmp_path, runs, width).splitlines() for width in (30, 21, 5))

    assert narrow[0] == "skill    linear  gla   softmax"
    assert narrow[1].split() == ["copy", "0.60", "0.60", "0.60"]
    assert narrower[0] == "skill    linear  gla"
    assert narrower[-1] == (
        "1 column does not fit into 21 characters; for all: synthbench export --suite smoke --mech linear,gla,softmax "
        f"--columns skill --across mechanisms --results {tmp_path}"
    )
    assert max(map(len, narrower[:3])) <= 21
    assert narrowest[0] == "skill    linear"


def test_a_row_for_each_learning_rate_where_a_suite_reports_several(tmp_path: Path, make_row: MakeRow) -> None:
    suite = load_suite("smoke")
    rates = suite.model_copy(update={"training": suite.training.model_copy(update={"learning_rates": (1e-3, 1e-2)})})
    (cell,) = make_cells(rates, {"copy": {}}, {"linear": {}}, device_type="cpu", is_full=True)
    runs = {run.run_id: run for run in cell.runs([42, 43])}
    fill(tmp_path, runs, make_row)

    lines = skill_table(tmp_path, runs, None).splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["copy", "lr=0.001"], ["copy", "lr=0.01"]]


def test_a_seed_of_a_ladder_has_the_rate_that_its_validation_chooses(tmp_path: Path, make_row: MakeRow) -> None:
    (cell,) = make_cells(load_suite("core"), {"mqar": {}}, {"linear": {}}, device_type="cpu", is_full=True)
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
        (["linear"], "results", "synthbench report --suite smoke"),
        (["linear"], "my rows", "synthbench report --suite smoke --results 'my rows'"),
        (["linear", "gla"], "results", "synthbench report --suite smoke --mech linear,gla"),
    ],
)
def test_the_next_command_has_the_options_that_it_needs(mechanisms: list[str], results: str, command: str) -> None:
    assert report_command(Path(results), runs_of(*mechanisms)) == command
    assert report_command(Path(results), runs_of(*mechanisms, is_full=False)) is None
