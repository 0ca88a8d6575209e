import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from synthbench import registry
from synthbench.mechanisms import MECHANISMS
from synthbench.registry import code_hash
from synthbench.results.schema import run_id
from synthbench.runner.estimates import TIMED, Estimates, cost_columns, work
from synthbench.runner.plan import (
    count_status,
    make_cells,
    make_plan,
    plan_request,
    restrict_rates,
    select_mechanisms,
    select_tasks,
    shorten,
    with_block_and_positions,
)
from synthbench.runner.request import Request
from synthbench.runner.run import run as run_request
from synthbench.suites import Suite, load_suite
from synthbench.suites.config import TuningSettings
from synthbench.training.cell import Cell, Run
from tests.results.rows import make_row
from tests.runner.runs import tiny
from tests.suites.files import suite_file
from tests.training.cells import make_cell

PAPER, CPU = load_suite("paper"), torch.device("cpu")


def cells_of(
    tasks: dict[str, dict[str, str]], mechanisms: dict[str, dict[str, str]], suite: Suite = PAPER
) -> list[Cell]:
    return make_cells(suite, tasks, mechanisms, device_type="cpu", is_full=True)


def test_a_cell_has_the_suites_arguments_and_the_command_lines_over_them() -> None:
    (cell,) = cells_of({"long_copy": {}}, {"slay": {"R": "5"}})
    (of_no_suite,) = cells_of({"copy": {}}, {"yat-sum": {}})
    (written_out,) = cells_of({"copy": {"vocabulary": "32", "length": "32"}}, {"yat-sum": {"epsilon": "0.001"}})

    assert of_no_suite.resolved_mechanism_arguments == {"epsilon": 1e-3}  # its own default
    assert of_no_suite.runs([0])[0].run_id == written_out.runs([0])[0].run_id
    assert cell.length == 128
    assert cell.resolved_mechanism_arguments == {
        "R": 5, "P": 32, "D": 16, "epsilon": 1e-6, "quadrature": "gauss-laguerre", "omega": "iid",
        "guard": "clamp", "delta": 1e-6,
    }  # fmt: skip


def test_a_row_is_known_by_declared_versions_not_by_source(monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,), (again,), (raised,) = (cells_of({"copy": {}}, {"slay": {}}) for _ in range(3))
    monkeypatch.setattr(registry, "code_hash", lambda _unit: "0" * 12)
    monkeypatch.setattr("synthbench.training.cell.code_hash", lambda _unit: "0" * 12)
    (run,), (same,) = (each.runs([42])[:1] for each in (cell, again))

    assert cell.code == dict.fromkeys(("task", "mech", "block", "positions"), "0" * 12)
    assert run.run_id == same.run_id
    monkeypatch.setattr(MECHANISMS["slay"], "version", MECHANISMS["slay"].version + 1)
    assert raised.runs([42])[0].run_id != run.run_id


def test_the_source_of_the_planned_components_travels_with_a_cell() -> None:
    (cell,) = cells_of({"copy": {}}, {"slay": {}})
    cell.code["mech"] = "elsewhere"

    there = pickle.loads(pickle.dumps(cell))  # noqa: S301 - its own

    assert there.code["mech"] == "elsewhere"
    assert there.code_here() == {**there.code, "mech": code_hash(MECHANISMS["slay"])}


def test_tasks_are_those_of_the_suite_and_mechanisms_all() -> None:
    assert list(select_tasks(PAPER, ["@robustness"])) == ["noisy_copy", "compression"]
    assert list(select_mechanisms(PAPER, ["@yat"])) == ["yat-spherical", "yat", "yat-sum"]


def test_what_decides_a_result_decides_the_run_id() -> None:
    base, others = make_cell(), [make_cell("copy"), make_cell(mechanism="linear"), make_cell(steps=5)]
    others += [make_cell(limit=31), make_cell(length=9), make_cell(vocabulary=9)]
    ids = {run.run_id for cell in (base, *others) for run in cell.runs([0, 1])}

    assert len(ids) == 14
    assert [run.run_id for run in make_cell().runs([0])] == [run.run_id for run in base.runs([0])]


def test_a_plan_holds_what_is_missing_in_groups_that_do_not_depend_on_it() -> None:
    cells = [make_cell("copy"), make_cell("first_token")]
    runs = cells[0].runs(range(5))
    done = {runs[index].run_id: 0.5 for index in (0, 1, 3)}

    plan = make_plan(cells, range(5), done, 2)

    assert (plan.num_planned, plan.num_done, plan.num_missing) == (10, 3, 7)
    groups = {
        (job.cells[0].task_name, tuple(run.seed for run in job.runs)): [run.seed for run in job.missing]
        for job in plan.jobs
    }
    assert groups == {
        ("copy", (2, 3)): [2],
        ("copy", (4,)): [4],
        ("first_token", (0, 1)): [0, 1],
        ("first_token", (2, 3)): [2, 3],
        ("first_token", (4,)): [4],
    }
    assert plan.jobs[0].cells[0].task_name == "first_token"  # longer, so first
    assert {(job.runs[0].seed, len(job.trained)) for job in plan.jobs} == {(0, 2), (2, 2), (4, 1)}


def test_cells_share_a_job_as_long_as_all_their_runs_fit() -> None:
    tasks = ("copy", "first_token", "parity", "reverse")
    cells = [make_cell(task, length=8) for task in tasks]
    longer = make_cell("copy", length=9)
    done = {run.run_id: 0.5 for run in cells[0].runs([0, 1])}

    def shares(count: int) -> set[tuple[tuple[str, ...], int, int]]:
        plan = make_plan([*cells, longer], range(2), done, count, is_across_tasks=True)
        assert (plan.num_planned, plan.num_missing) == (10, 8)
        return {
            (tuple(f"{cell.task_name} {cell.length}" for cell in job.cells), len(job.runs), len(job.missing))
            for job in plan.jobs
        }

    assert shares(6) == {(("copy 8", "first_token 8", "parity 8"), 6, 4), (("reverse 8",), 2, 2), (("copy 9",), 2, 2)}
    assert shares(64) == {(("copy 8", "first_token 8", "parity 8", "reverse 8"), 8, 6), (("copy 9",), 2, 2)}
    alone = {((f"{task} 8",), 2, 2) for task in tasks[1:]} | {(("copy 9",), 2, 2)}
    assert shares(3) == alone
    assert shares(1) == {(names, 1, 1) for names, _, _ in alone}


def test_shortening_says_so_only_if_it_shortens() -> None:
    assert shorten(PAPER, steps=None, limit=None) == PAPER
    assert shorten(PAPER, steps=200, limit=10**6) == PAPER
    assert shorten(PAPER, steps=10, limit=8).evaluation.test_sequences == 8


def test_rows_that_another_suite_of_the_same_protocol_has_are_named(tmp_path: Path) -> None:
    run_request(tiny(tmp_path, executor="inline"))
    request = tiny(tmp_path, suite=str(suite_file(tmp_path / "mine.toml", "smoke")))
    plan = plan_request(request, CPU)

    assert plan.num_done == plan.num_planned > 0
    assert set(run_request(request).rows["suite"]) == {"mine"}
    assert f"{plan.num_done} of the rows already done are of suite 'smoke'" in " ".join(plan.notices)


def test_some_of_the_rates_make_some_of_the_rows() -> None:
    text = load_suite("text")
    every, some = (
        cells_of({"text": {}}, {"linear": {}}, suite)[0].runs([1, 2])
        for suite in (text, restrict_rates(text, [0.03, 0.003]))
    )

    assert {run.learning_rate for run in some} == {0.03, 0.003}
    assert [run.run_id for run in some] == [run.run_id for run in every if run.learning_rate != 0.01]


def test_rates_that_are_chosen_among_name_a_row_and_the_chosen_one_does_not(tuned: Cell) -> None:
    suite = tuned.suite.model_copy(update={"tuning": TuningSettings(seeds=(7, 9))})

    assert Run(tuned, 0, None).run_id == Run(tuned, 0, 1e-2).run_id
    assert Run(tuned, 0, None).run_id != Run(replace(tuned, suite=suite), 0, None).run_id
    assert len({run.run_id for run in tuned.tuning_runs()}) == 6
    for run in (*tuned.runs([0]), *tuned.tuning_runs()):
        assert run.run_id == run_id(run.identity)


@pytest.mark.parametrize(
    ("mechanism", "changes", "conv", "positions"),
    [
        ("kda", {"condition": "stock"}, 4, "none"),
        ("kda", {"condition": "bare"}, 0, "none"),
        ("kda", {}, 0, "learned"),
        ("softmax", {"condition": "stock"}, 0, "rope"),
        ("gla", {"condition": "stock", "positions": "rope"}, 0, "rope"),
        ("gla+softmax", {"condition": "stock"}, 0, "own"),
        ("gla+kda", {"condition": "stock"}, 0, "none"),
    ],
)
def test_a_condition_sets_options_and_positions_unless_these_are_named(
    mechanism: str, changes: dict[str, Any], conv: int, positions: str, tmp_path: Path
) -> None:
    plan = plan_request(tiny(tmp_path, mechanisms=(mechanism,), **changes), CPU)
    cell = next(iter(plan.runs.values())).cell

    assert cell.resolved_mechanism_arguments.get("conv", 0) == conv
    assert cell.positions[0].name == positions


def test_a_condition_changes_positions_only_in_suites_that_are_older_than_conditions() -> None:
    old = load_suite("smoke")
    suites_of_both = (old, old.model_copy(update={"condition": "stock"}))
    bare = [with_block_and_positions(suite, block=None, positions=None, condition="bare") for suite in suites_of_both]

    assert [suite.model.positions for suite in bare] == ["own", old.model.positions]


@pytest.mark.end_to_end
def test_a_rotation_that_means_nothing_is_allowed_and_said_in_the_plan_and_in_the_row(tmp_path: Path) -> None:
    def asked(positions: str) -> Request:
        return tiny(tmp_path, mechanisms=("kda", "softmax"), positions=positions, seeds=(1,), steps=1)

    (notice,) = plan_request(asked("rope"), CPU).notices
    rows = run_request(asked("rope")).rows

    assert notice.startswith("positions 'rope' mean nothing to kda: a decay per channel")
    assert set(rows["note"][rows["mech"] == "kda"]) == {notice}
    assert rows["note"][rows["mech"] == "softmax"].isna().all()
    assert plan_request(asked("none"), CPU).notices == ()


broad = partial(tiny, tasks=("all",), mechanisms=("linear,softmax,mean",))
"""12 cells with two seeds."""


def test_the_shards_are_the_plan_each_row_once_and_seeds_and_groups_move_no_cell(tmp_path: Path) -> None:
    def cells(**changes: Any) -> set[tuple[str, str]]:
        runs = plan_request(broad(tmp_path, shard="2/3", **changes), CPU).runs.values()
        return {(run.cell.task_name, run.cell.mechanism_name) for run in runs}

    shards = [plan_request(broad(tmp_path, shard=f"{part}/3"), CPU).runs for part in range(1, 4)]

    assert sorted(name for shard in shards for name in shard) == sorted(plan_request(broad(tmp_path), CPU).runs)
    assert max(map(len, shards)) < 24
    assert cells() == cells(seeds=(7, 8, 9), group_size=64)
    for number, shard in enumerate(shards, start=1):
        assert count_status(broad(tmp_path, shard=f"{number}/3"), CPU)[-1]["planned"] == len(shard)


def test_rows_that_were_made_without_determinism_are_missing_where_it_is_asked_for(tmp_path: Path) -> None:
    short = {"tasks": ("copy:length=8",), "seeds": (0,), "steps": 1, "limit": 8, "executor": "inline"}
    run_request(tiny(tmp_path, **short))
    asked = tiny(tmp_path, **short, deterministic=True)

    assert plan_request(asked, CPU).num_done == 0
    assert run_request(asked).rows["deterministic"].all()
    assert plan_request(asked, CPU).num_missing == 0
    assert plan_request(tiny(tmp_path, **short), CPU).num_missing == 0


def timed(cell: Cell, wall_s: float, **changes: Any) -> dict[str, Any]:
    """Time of a cell's row."""
    return {**cost_columns(cell), "status": "ok", "ensemble_size": 1, "wall_s": wall_s, **changes}


def estimates(*rows: dict[str, Any]) -> Estimates:
    return Estimates(pd.DataFrame(rows, columns=list(TIMED)))


def test_the_nearest_rows_count_and_of_these_the_median() -> None:
    cell = make_cell("reverse", "slay", length=16)
    further: tuple[dict[str, Any], ...] = (
        {"task": "other"},
        {"seq_len": 32},
        {"task_category": "other"},
        {"mech_family": "other"},
    )
    rows: list[dict[str, Any]] = [timed(cell, 1.0)]
    for rate, changes in enumerate(further, start=2):
        kin = {**rows[-1], **changes}
        rows.append({**kin, "wall_s": rate * work(kin) / work(rows[0])})

    assert [estimates(*rows[first:]).seconds(cell) for first in range(5)] == pytest.approx([1, 2, 3, 4, 5])
    assert estimates(rows[0], timed(cell, 2.0), timed(cell, 9.0), *[rows[1]] * 9).seconds(cell) == pytest.approx(2.0)
    assert set(TIMED) <= set(make_row())


def test_batched_runs_share_the_time_and_steps_and_length_scale_it() -> None:
    short, long = make_cell("reverse", steps=10, length=8), make_cell("reverse", steps=40, length=16)

    assert estimates(timed(short, 6.0, ensemble_size=3)).cost(short) == pytest.approx(2.0)
    assert estimates(timed(short, 1.0)).cost(long) == pytest.approx(4 * 2 * (1 + 16 / 64) / (1 + 8 / 64))


def test_what_was_not_trained_or_elsewhere_says_nothing() -> None:
    cell = make_cell()
    known = estimates(timed(cell, 0.01, status="error"), timed(cell, 0.02, device_type="cuda"))

    assert known.seconds(cell) is None
    assert known.cost(cell) == work(cost_columns(cell)) == Estimates().cost(cell)


def test_a_plan_begins_with_what_was_measured_to_take_longest() -> None:
    cells = [make_cell("copy"), make_cell("first_token", length=9), make_cell("reverse", length=9)]
    known = estimates(*(timed(cell, seconds) for cell, seconds in zip(cells, (2.0, 0.5, 7.0), strict=True)))

    guessed = make_plan(cells, range(1), {}, 1)
    measured = make_plan(cells, range(1), {}, 1, estimates=known)

    assert [job.cells[0].task_name for job in guessed.jobs] == ["copy", "first_token", "reverse"]
    assert [job.cells[0].task_name for job in measured.jobs] == ["reverse", "copy", "first_token"]
