"""Rows that a worker makes of a job explain themselves, also where something is raised."""

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from synthbench.results import Store
from synthbench.runner.plan import make_plan, shorten
from synthbench.runner.request import RunContext
from synthbench.runner.rows import Failure
from synthbench.runner.worker import OutOfMemoryBesideOthers, execute, record_failure
from synthbench.training.cell import Cell
from tests.runner.runs import job_of
from tests.training.cells import make_cell

SEEDS = range(3)


def rows_of(context: RunContext) -> pd.DataFrame:
    """Of the command's store and those of its jobs that run somebody else's code, from which the driver takes them."""
    stores = [path.parent for path in sorted(context.results.rglob("store.json"))]
    return pd.concat([Store.open(root, create=False).runs() for root in stores])


def test_a_job_that_fails_before_a_rate_is_chosen_makes_rows_without_one(tuned: Cell, context: RunContext) -> None:
    (job,) = make_plan([tuned], range(2), {}).jobs
    outcomes = record_failure(job, Failure("contract", "ContractError", "it leaks " * 100), context, 1)

    rows = rows_of(context)
    assert [outcome.status for outcome in outcomes] == list(rows.status) == ["contract"] * 2
    assert rows.lr.isna().all()
    assert rows.role.isna().all()
    assert rows.error_message.str.len().max() == 500


def test_out_of_memory_halves_the_batched_runs_down_to_one(faulty: Callable[[str], Cell], context: RunContext) -> None:
    outcomes = execute(job_of(faulty("fits-alone"), seeds=SEEDS), context, 1)

    assert [(outcome.seed, outcome.status) for outcome in outcomes] == [(seed, "ok") for seed in SEEDS]
    assert set(rows_of(context).ensemble_size) == {1}


def test_out_of_memory_beside_other_workers_is_no_row_yet(faulty: Callable[[str], Cell], context: RunContext) -> None:
    with pytest.raises(OutOfMemoryBesideOthers, match="can't allocate memory"):
        execute(job_of(faulty("asks-for-too-much"), seeds=SEEDS), replace(context, is_alone=False), 1)

    assert rows_of(context).empty


def test_what_has_no_deterministic_algorithm_is_unsupported_only_if_one_is_asked_for(
    faulty: Callable[[str], Cell], context: RunContext
) -> None:
    job = job_of(faulty("has-no-deterministic-form"), seeds=[0])
    (asked,) = execute(job, replace(context, is_deterministic=True), 1)
    assert rows_of(context).deterministic.all()
    assert not torch.are_deterministic_algorithms_enabled()
    (not_asked,) = execute(job, context, 1)

    assert not rows_of(context).deterministic.any()
    assert (asked.status, not_asked.status) == ("unsupported", "ok")
    assert "put_ does not have a deterministic implementation" in (asked.message or "")


def test_a_loss_that_is_no_number_ends_its_run_and_keeps_the_curve_but_no_predictions(
    faulty: Callable[[str], Cell], context: RunContext, tmp_path: Path
) -> None:
    cell = faulty("turns-to-nothing")
    cell = replace(cell, suite=shorten(cell.suite, steps=80, limit=4))
    execute(job_of(cell, seeds=[0]), replace(context, predictions=tmp_path), 1)

    (row,) = rows_of(context).to_dict("records")
    assert (row["status"], row["steps"], row["steps_planned"]) == ("diverged", 40, 80)
    assert math.isnan(row["score"])
    assert math.isnan(row["skill"])
    (made,) = context.results.glob("_tmp/*/*")
    curve = Store.open(made, create=False).curves()
    assert set(curve.step) == {20, 40}
    assert curve.value[curve.step == 20].notna().all()
    assert not list(tmp_path.glob("*.npz"))


def test_a_cell_that_fails_takes_no_other_with_it_and_the_driver_gets_its_traceback(
    faulty: Callable[[str], Cell], context: RunContext
) -> None:
    outcomes = execute(job_of(faulty("raises"), make_cell("copy", length=8), seeds=SEEDS), context, 1)
    rows = rows_of(context)

    assert [(outcome.mechanism, outcome.status) for outcome in outcomes] == [
        *[("raises", "error")] * 3,
        *[("softmax", "ok")] * 3,
    ]
    assert all("in misbehave" in (outcome.trace or "") for outcome in outcomes[:3])
    assert set(rows.ensemble_size) == {3}
    failed = rows[rows.mech == "raises"]
    assert set(failed.error_type) == {"ArithmeticError"}
    assert failed.score.isna().all()


# Where a suite tunes: learning rates that are chosen on other seeds.


@pytest.fixture(scope="module")
def other(tuned: Cell) -> Cell:
    """A cell of another task that is tuned alike."""
    return replace(make_cell("copy", length=6, vocabulary=5), suite=tuned.suite)


@pytest.fixture(scope="module")
def trained(tuned: Cell, other: Cell, tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """Two seeds of both in one job, in a store, with their predictions."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "kept").mkdir()
    context = RunContext(folder / "results", "cpu", "inline", time.time(), predictions=folder / "kept")
    (job,) = make_plan([tuned, other], range(2), {}, 64, is_across_tasks=True).jobs
    assert [(outcome.task, outcome.seed) for outcome in execute(job, context, 1)] == [
        (cell.task_name, seed) for cell in (tuned, other) for seed in (0, 1)
    ]
    return context


def test_every_cell_of_a_job_has_the_rate_of_the_highest_validation_skill_on_other_seeds(
    tuned: Cell, other: Cell, trained: RunContext
) -> None:
    rows = rows_of(trained)
    tuning, reported = rows[rows.role == "tuning"], rows[rows.role.isna()]

    for cell in (tuned, other):
        tried, chosen = (some[some.task == cell.task_name] for some in (tuning, reported))
        means = tried.groupby("lr").skill.mean()
        assert means.max() > means.min()
        assert set(chosen.lr) == {means.idxmax()}
        assert sorted(zip(tried.seed, tried.lr, strict=True)) == sorted(
            (run.seed, run.learning_rate) for run in cell.tuning_runs()
        )
    assert rows[["mech_family", "member_strategy", "is_full"]].drop_duplicates().to_numpy().tolist() == [
        ["softmax", "fold", False]
    ]
    assert set(Store.open(trained.results, create=False).curves().groupby("run_id").size()) == {3}
    assert set(tuning.metric_name) == {"validation accuracy"}
    assert set(tuning.n_eval) == {32}
    assert (set(tuning.ensemble_size), set(reported.ensemble_size)) == ({2 * 3 * 2}, {4})
    assert set(reported.tuning_rule) == {"highest mean validation skill over seeds 7, 8"}
    assert set(reported.tuning_trials) == {3}
    assert trained.predictions is not None
    assert {path.stem for path in trained.predictions.iterdir()} == set(reported.run_id)


def test_what_has_been_tuned_is_not_tuned_again(tuned: Cell, trained: RunContext, context: RunContext) -> None:
    shutil.copytree(trained.results, context.results)
    before = rows_of(context).set_index("run_id")
    plan = make_plan([tuned], range(3), dict(zip(before.index, before.skill, strict=True)))
    (job,) = plan.jobs
    (outcome,) = execute(job, context, 1)
    after = rows_of(context).set_index("run_id")

    assert (plan.num_planned, plan.num_done, outcome.seed) == (3, 2, 2)
    assert after.lr[outcome.run_id] in set(before.lr[before.role.isna() & (before.task == tuned.task_name)])
    pd.testing.assert_frame_equal(after.drop(outcome.run_id), before)


def test_the_smallest_rate_is_taken_where_nothing_was_learned(tuned: Cell, context: RunContext) -> None:
    failed = {run.run_id: None for run in tuned.tuning_runs()}
    (job,) = make_plan([tuned], range(1), failed).jobs
    execute(job, context, 1)

    assert list(rows_of(context).lr) == [min(tuned.suite.training.learning_rates)]


def test_stretched_scores_and_what_shortcuts_reach_are_in_the_row(context: RunContext) -> None:
    cell = make_cell("parity_running", length=16, stretches=(2,))
    execute(job_of(cell, seeds=[0]), context, 1)
    (row,) = rows_of(context).to_dict("records")
    metrics = json.loads(row["metrics"])
    shortcuts = {name for name in metrics if name.startswith("shortcut.")}

    assert metrics["x2.score"] == row["score_ood"]
    assert metrics["x2.skill"] == pytest.approx((metrics["x2.score"] - row["floor"]) / (1 - row["floor"]))
    assert (row["lr_first"], row["lr"], row["lr_last"]) == (1e-3, 1e-3, 1e-3)
    assert row["floor"] <= row["local_ceiling"] < row["ceiling"]
    assert shortcuts == {f"shortcut.{name}" for name in cell.task.shortcuts(torch.zeros(1, cell.length).long().numpy())}
