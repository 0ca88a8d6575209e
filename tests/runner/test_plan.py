import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from synthbench import registry, suites
from synthbench.errors import UnknownName, UsageError
from synthbench.mechanisms import MECHANISMS
from synthbench.registry import code_hash
from synthbench.results.schema import run_id
from synthbench.runner.executors.inline import beside_same_data
from synthbench.runner.plan import (
    Job,
    at_rates,
    count_status,
    make_cells,
    make_plan,
    plan_request,
    select_mechanisms,
    select_tasks,
    shortened,
    surrounded,
)
from synthbench.runner.run import run
from synthbench.suites import load_suite
from synthbench.suites.config import TuningSettings
from synthbench.tasks import TASKS
from synthbench.training.cell import Cell
from tests.runner.runs import tiny

PAPER = load_suite("paper")


def cells_of(tasks: dict[str, dict[str, str]], mechanisms: dict[str, dict[str, str]]) -> list[Cell]:
    return make_cells(PAPER, tasks, mechanisms, device_type="cpu", is_full=True)


def test_a_cell_has_the_suites_arguments_and_the_command_lines_over_them() -> None:
    (cell,) = cells_of({"long_copy": {}}, {"slay": {"R": "5"}})
    (of_no_suite,) = cells_of({"copy": {}}, {"yat-sum": {}})
    (written_out,) = cells_of({"copy": {"vocabulary": "32", "length": "32"}}, {"yat-sum": {"epsilon": "0.001"}})

    assert of_no_suite.resolved_mechanism_arguments == {"epsilon": 1e-3}  # its own default
    assert of_no_suite.members([0])[0].run_id == written_out.members([0])[0].run_id
    assert cell.length == 128
    assert cell.resolved_mechanism_arguments == {
        "R": 5, "P": 32, "D": 16, "epsilon": 1e-6, "quadrature": "gauss-laguerre", "omega": "iid",
        "guard": "clamp", "delta": 1e-6,
    }  # fmt: skip


def test_a_row_is_known_by_declared_versions_not_by_source(monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,), (again,), (raised,) = (cells_of({"copy": {}}, {"slay": {}}) for _ in range(3))
    monkeypatch.setattr(registry, "code_hash", lambda _unit: "0" * 12)
    monkeypatch.setattr("synthbench.training.cell.code_hash", lambda _unit: "0" * 12)
    (member,), (same,) = (each.members([42])[:1] for each in (cell, again))

    assert cell.code == dict.fromkeys(("task", "mech", "block", "positions"), "0" * 12)
    assert member.run_id == same.run_id
    monkeypatch.setattr(MECHANISMS["slay"], "version", MECHANISMS["slay"].version + 1)
    assert raised.members([42])[0].run_id != member.run_id


def test_the_source_of_the_planned_components_travels_with_a_cell() -> None:
    (cell,) = cells_of({"copy": {}}, {"slay": {}})
    cell.code["mech"] = "elsewhere"

    there = pickle.loads(pickle.dumps(cell))  # noqa: S301 - its own

    assert there.code["mech"] == "elsewhere"
    assert there.code_here() == {**there.code, "mech": code_hash(MECHANISMS["slay"])}


@pytest.mark.parametrize(
    ("tasks", "mechanisms", "message"),
    [
        ({"copy": {"lenght": "8"}}, {"softmax": {}}, "did you mean 'length'"),
        ({"copy": {"length": "eight"}}, {"softmax": {}}, "a whole number"),
        ({"copy": {"length": "-3"}}, {"softmax": {}}, "allowed: 1 and more"),
        ({"kv_recall": {"length": "21"}}, {"softmax": {}}, "21"),
        ({"copy": {"vocabulary": "1"}}, {"softmax": {}}, "from 2"),
        ({"copy": {}}, {"slay": {"guard": "adds"}}, "one of add, clamp"),
        ({"copy": {}}, {"slay": {"Q": "1"}}, "allowed: D, P, R"),
    ],
)
def test_bad_arguments_are_named(
    tasks: dict[str, dict[str, str]], mechanisms: dict[str, dict[str, str]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        cells_of(tasks, mechanisms)


def test_tasks_are_those_of_the_suite_and_mechanisms_all() -> None:
    assert list(select_tasks(PAPER, ["@robustness"])) == ["noisy_copy", "compression"]
    assert list(select_mechanisms(PAPER, ["@yat"])) == ["yat-spherical", "yat", "yat-sum"]
    with pytest.raises(UnknownName, match="group of tasks"):
        select_tasks(load_suite("smoke"), ["@robustness"])


def test_a_task_that_the_suite_does_not_list_is_run_with_its_protocol_under_another_name() -> None:
    smoke = load_suite("smoke")
    tasks = select_tasks(smoke, ["copy", "mqar:rung=3", "parity"])
    cells = {cell.task_name: cell for cell in make_cells(smoke, tasks, {"linear": {}}, device_type="cpu", is_full=True)}

    assert {name: cell.suite.name for name, cell in cells.items()} == {
        "copy": "smoke", "mqar": "smoke.extra", "parity": "smoke.extra",
    }  # fmt: skip
    assert cells["copy"].suite == smoke
    assert {name: cells[name].length for name in ("mqar", "parity")} == {"mqar": 16, "parity": TASKS["parity"].length}
    protocol = {"version", "model", "training", "evaluation", "seeds", "tuning", "mechanisms"}
    assert cells["mqar"].suite.model_dump(include=protocol) == smoke.model_dump(include=protocol)


def test_what_decides_a_result_decides_the_run_id(make_cell: Callable[..., Cell]) -> None:
    base = make_cell()
    others = (
        make_cell(steps=5),
        make_cell(limit=31),
        make_cell("copy"),
        make_cell(length=9),
        make_cell(vocabulary=9),
        make_cell(mechanism="linear"),
    )
    ids = {member.run_id for cell in (base, *others) for member in cell.members([0, 1])}

    assert len(ids) == 14
    assert [member.run_id for member in make_cell().members([0])] == [member.run_id for member in base.members([0])]


@pytest.mark.parametrize(("suite", "task"), [("paper", "copy"), ("peers", "mqar")])
def test_a_run_id_is_the_hash_of_the_members_identity(suite: str, task: str) -> None:
    (cell,) = make_cells(load_suite(suite), {task: {}}, {"slay": {}}, device_type="cpu", is_full=True)
    members = [*cell.members([3]), *cell.tuning_members()]

    assert [member.run_id for member in members] == [run_id(member.identity) for member in members]


def test_a_plan_holds_what_is_missing_in_groups_that_do_not_depend_on_it(make_cell: Callable[..., Cell]) -> None:
    cells = [make_cell("copy"), make_cell("first_token")]
    members = cells[0].members(range(5))
    done = {members[index].run_id: 0.5 for index in (0, 1, 3)}

    plan = make_plan(cells, range(5), done, 2)

    assert (plan.num_planned, plan.num_done, plan.num_missing) == (10, 3, 7)
    groups = {
        (job.cells[0].task_name, tuple(member.seed for member in job.members)): [member.seed for member in job.missing]
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
    assert {(job.members[0].seed, len(job.trained)) for job in plan.jobs} == {(0, 2), (2, 2), (4, 1)}


def test_cells_share_a_job_as_long_as_all_their_members_fit(make_cell: Callable[..., Cell]) -> None:
    tasks = ("copy", "first_token", "parity", "reverse")
    cells = [make_cell(task, length=8) for task in tasks]
    longer = make_cell("copy", length=9)
    done = {member.run_id: 0.5 for member in cells[0].members([0, 1])}

    def shares(count: int) -> set[tuple[tuple[str, ...], int, int]]:
        plan = make_plan([*cells, longer], range(2), done, count, is_across_tasks=True)
        assert (plan.num_planned, plan.num_missing) == (10, 8)
        return {
            (tuple(f"{cell.task_name} {cell.length}" for cell in job.cells), len(job.members), len(job.missing))
            for job in plan.jobs
        }

    assert shares(6) == {
        (("copy 8", "first_token 8", "parity 8"), 6, 4),
        (("reverse 8",), 2, 2),
        (("copy 9",), 2, 2),
    }
    assert shares(64) == {(("copy 8", "first_token 8", "parity 8", "reverse 8"), 8, 6), (("copy 9",), 2, 2)}
    alone = {((f"{task} 8",), 2, 2) for task in tasks[1:]} | {(("copy 9",), 2, 2)}
    assert shares(3) == alone
    assert shares(1) == {(names, 1, 1) for names, _, _ in alone}


def test_one_worker_takes_jobs_of_the_same_data_together_and_long_ones_first(make_cell: Callable[..., Cell]) -> None:
    cells = [make_cell(task, mechanism) for mechanism in ("linear", "softmax") for task in ("copy", "first_token")]
    jobs = make_plan(cells, range(2), {}, 1).jobs

    def names(jobs: Sequence[Job]) -> list[tuple[str, int, str]]:
        firsts = [job.members[0] for job in jobs]
        return [(first.cell.task_name, first.seed, first.cell.mechanism_name) for first in firsts]

    assert [task for task, *_ in names(jobs)] == ["first_token"] * 4 + ["copy"] * 4  # longer, so first
    assert names(beside_same_data(jobs)) == [
        (task, seed, mechanism)
        for task in ("first_token", "copy")
        for seed in (0, 1)
        for mechanism in ("linear", "softmax")
    ]


def test_learning_rates_make_members(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell(learning_rates=[1e-2, 1e-3])

    assert [(member.seed, member.learning_rate) for member in cell.members([4, 5])] == [
        (4, 1e-2), (5, 1e-2), (4, 1e-3), (5, 1e-3),
    ]  # fmt: skip


def test_some_of_the_rates_make_some_of_the_rows() -> None:
    text = load_suite("text")
    every, some = (
        make_cells(suite, {"text": {}}, {"linear": {}}, device_type="cpu", is_full=True)[0].members([1, 2])
        for suite in (text, at_rates(text, [0.03, 0.003]))
    )

    assert {member.learning_rate for member in some} == {0.03, 0.003}
    assert [member.run_id for member in some] == [member.run_id for member in every if member.learning_rate != 0.01]


def test_a_rate_that_the_suite_does_not_try_and_any_of_one_that_tunes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"a rate is 0.02; allowed in suite 'text': 0.003, 0.01, 0.03"):
        at_rates(load_suite("text"), [0.01, 0.02])
    tuned = PAPER.model_copy(update={"tuning": TuningSettings(seeds=(7,))})
    with pytest.raises(UsageError, match="allowed: none in suite 'paper', which tunes"):
        at_rates(tuned, PAPER.training.learning_rates)


def test_shortening_says_so_only_if_it_shortens() -> None:
    assert shortened(PAPER, steps=None, limit=None) == PAPER
    assert shortened(PAPER, steps=200, limit=10**6) == PAPER
    assert shortened(PAPER, steps=10, limit=8).evaluation.test_sequences == 8
    for wrong in ({"steps": 0, "limit": None}, {"steps": None, "limit": -1}):
        with pytest.raises(UsageError, match="allowed: 1 and more"):
            shortened(PAPER, **wrong)


def test_rows_are_counted_by_category_and_in_all() -> None:
    planned = [("basic", ["a", "b"]), ("memory", ["c", "d"])]
    counted = count_status(planned, {"a": "ok", "b": "error", "d": "ok", "z": "ok"})

    assert [tuple(entry.values()) for entry in counted] == [
        ("basic", 2, 1, 1, 0),
        ("memory", 2, 1, 0, 1),
        ("all", 4, 2, 1, 1),
    ]


@pytest.mark.parametrize(("positions", "is_said"), [("rope", True), ("none", False), (None, False)])
def test_a_rotation_that_means_nothing_is_allowed_and_said(
    positions: str | None, *, is_said: bool, tmp_path: Path
) -> None:
    request = tiny(tmp_path, mechanisms=("kda", "softmax"), positions=positions)
    notices = " ".join(plan_request(request, torch.device("cpu")).notices)

    assert ("positions 'rope' mean nothing to kda: " in notices) == is_said
    assert "nothing to softmax" not in notices


def test_the_row_of_a_rotation_that_means_nothing_says_so(tmp_path: Path) -> None:
    report = run(tiny(tmp_path, mechanisms=("kda", "softmax"), positions="rope", seeds=(1,), steps=1))
    notes = dict(zip(report.rows["mech"], report.rows["note"].fillna(""), strict=True))
    assert notes["kda"].startswith("positions 'rope' mean nothing to kda: a decay per channel")
    assert notes["softmax"] == ""


@pytest.mark.parametrize(
    ("condition", "conv", "positions"), [("stock", 4, "none"), ("bare", 0, "none"), (None, 0, "learned")]
)
def test_a_condition_sets_options_and_positions_of_its_mechanisms(
    condition: str | None, conv: int, positions: str, tmp_path: Path
) -> None:
    plan = plan_request(tiny(tmp_path, mechanisms=("kda",), condition=condition), torch.device("cpu"))
    cell = next(iter(plan.members.values())).cell

    assert cell.resolved_mechanism_arguments.get("conv", 0) == conv
    assert cell.positions[0].name == positions


def test_positions_that_are_named_stand_beside_a_condition_and_hybrids_have_those_of_each_layer(tmp_path: Path) -> None:
    def positions_of(mechanism: str, **changes: Any) -> str:
        request = tiny(tmp_path, mechanisms=(mechanism,), condition="stock", **changes)
        return next(iter(plan_request(request, torch.device("cpu")).members.values())).cell.positions[0].name

    assert [positions_of(name) for name in ("softmax", "gla", "gla+softmax", "gla+kda")] == [
        "rope",
        "none",
        "own",
        "none",
    ]
    assert positions_of("gla", positions="rope") == "rope"


def test_a_condition_that_does_not_exist_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no condition called 'stoc'; did you mean 'stock'"):
        plan_request(tiny(tmp_path, condition="stoc"), torch.device("cpu"))


def test_a_condition_changes_positions_only_in_suites_that_are_older_than_conditions() -> None:
    old = load_suite("smoke")
    new = old.model_copy(update={"condition": "stock"})

    assert surrounded(old, block=None, positions=None, condition="bare").model.positions == "own"
    assert surrounded(new, block=None, positions=None, condition="bare").model.positions == old.model.positions
    assert surrounded(old, block=None, positions="none", condition="bare").model.positions == "none"


def test_rows_that_another_suite_of_the_same_protocol_has_are_named(tmp_path: Path) -> None:
    run(tiny(tmp_path, executor="inline"))
    mine = tmp_path / "mine.toml"
    text = (Path(suites.__file__).parent / "smoke.toml").read_text(encoding="utf-8")
    mine.write_text(text.replace('name = "smoke"', 'name = "mine"', 1), encoding="utf-8")
    request = tiny(tmp_path, suite=str(mine))
    plan = plan_request(request, torch.device("cpu"))

    assert plan.num_done == plan.num_planned > 0
    assert set(run(request).rows["suite"]) == {"mine"}
    assert f"{plan.num_done} of the rows already done are of suite 'smoke'" in " ".join(plan.notices)


@pytest.mark.parametrize(
    ("named", "without"),
    [
        ("softmax", "softmax"),
        ("rewa-spherical", "rewa-spherical"),
        ("rewa-geometric:m=0,p=0", "rewa-geometric"),
        ("rewa-geometric,slay", "slay"),
    ],
)
def test_a_curriculum_is_refused_for_a_mechanism_without_several_geometries(
    tmp_path: Path, named: str, without: str
) -> None:
    request = tiny(tmp_path, suite="curriculum", tasks=("all",), mechanisms=(named,))
    with pytest.raises(UsageError) as refused:
        plan_request(request, torch.device("cpu"))

    refusal = str(refused.value)
    assert refusal.startswith(f"mechanism {without!r} ")
    assert refusal.endswith("allowed: rewa-adaptive, rewa-geometric, rewa-lsh, rewa-mixture")
    assert "\n" not in refusal


def test_the_curriculum_of_other_mechanisms_is_planned_and_differs_from_suite_paper_in_its_schedule_alone(
    tmp_path: Path,
) -> None:
    curriculum = load_suite("curriculum")
    plan = plan_request(tiny(tmp_path, suite="curriculum", tasks=("all",), mechanisms=()), torch.device("cpu"))
    constant = curriculum.training.model_copy(update={"schedule": "constant"})

    assert {run.cell.mechanism_name for run in plan.members.values()} == set(curriculum.mechanisms)
    assert (curriculum.model, constant, curriculum.evaluation) == (PAPER.model, PAPER.training, PAPER.evaluation)
    assert curriculum.tasks.items() <= PAPER.tasks.items()
