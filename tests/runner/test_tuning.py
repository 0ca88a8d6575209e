"""Learning rates that are chosen on other seeds, tests out of range, and members that stop when they have solved it."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from synthbench.errors import UsageError
from synthbench.results import Store
from synthbench.runner import worker
from synthbench.runner.plan import make_cells, make_plan, shortened
from synthbench.runner.rows import Failure
from synthbench.runner.worker import RunContext, RunOutcome, execute
from synthbench.suites import Suite, load_suite
from synthbench.suites.config import TuningSettings
from synthbench.training.cell import Cell, Member
from synthbench.training.train import Trainer, train_group

CPU = torch.device("cpu")
RATES = (1e-5, 1e-2, 2e-2)


def changed(part: str, **changes: Any) -> Suite:
    suite = shortened(load_suite("paper"), steps=20, limit=32)
    return suite.model_copy(update={part: getattr(suite, part).model_copy(update=changes)})


def cell_of(suite: Suite, task: str = "first_token", mechanism: str = "softmax", **arguments: int) -> Cell:
    given = {name: str(value) for name, value in arguments.items()}
    (cell,) = make_cells(suite, {task: given}, {mechanism: {}}, device_type="cpu", is_full=False)
    return cell


@pytest.fixture(scope="module")
def tuned() -> Cell:
    """A cell that chooses among three rates by two seeds."""
    suite = changed("training", learning_rates=RATES).model_copy(update={"tuning": TuningSettings(seeds=(7, 8))})
    return cell_of(suite, length=6, vocabulary=3)


@pytest.fixture(scope="module")
def trained(tuned: Cell, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunOutcome], Path]:
    """A store with two seeds of it, what became of them, and the predictions that were kept."""
    folder = tmp_path_factory.mktemp("trained")
    kept = folder / "kept"
    kept.mkdir()
    context = RunContext(folder / "results", "cpu", "inline", time.time(), predictions=kept)
    (job,) = plan_of(tuned, range(2), context.results).jobs
    return context.results, execute(job, context, 1), kept


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return RunContext(tmp_path / "results", "cpu", "inline", time.time())


def plan_of(cell: Cell, seeds: range, store: Path, group_size: int = 2) -> Any:
    done = {}
    if store.exists():
        rows = Store.open(store, create=False).runs()
        done = dict(zip(rows["run_id"], rows["skill"], strict=True))
    return make_plan([cell], seeds, done, group_size)


def test_the_rate_is_chosen_by_validation_skill_on_other_seeds(trained: tuple[Path, list[RunOutcome], Path]) -> None:
    results, outcomes, kept = trained
    rows = Store.open(results, create=False).runs()
    tuning, reported = rows[rows.role == "tuning"], rows[rows.role.isna()]
    assert [outcome.seed for outcome in outcomes] == [0, 1]
    assert sorted(zip(tuning.seed, tuning.lr, strict=True)) == sorted((seed, rate) for seed in (7, 8) for rate in RATES)
    means = tuning.groupby("lr").skill.mean()
    assert means.max() > means.min()
    assert set(reported.lr) == {means.idxmax()}
    assert set(tuning.metric_name) == {"validation accuracy"}
    assert set(tuning.n_eval) == {32}
    assert set(reported.tuning_rule) == {"highest mean validation skill over seeds 7, 8"}
    assert set(reported.tuning_trials) == {3}
    assert {path.stem for path in kept.iterdir()} == set(reported.run_id)


def test_what_has_been_tuned_is_not_tuned_again(
    tuned: Cell, trained: tuple[Path, list[RunOutcome], Path], context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained[0], context.results)
    chosen = set(Store.open(context.results, create=False).runs().query("role.isna()").lr)
    members: list[Member] = []

    def spied(some: Any, device: torch.device, **how: Any) -> Any:
        members.extend(some)
        return train_group(some, device, **how)

    monkeypatch.setattr(worker, "train_group", spied)
    plan = plan_of(tuned, range(3), context.results)
    (job,) = plan.jobs
    execute(job, context, 1)

    assert (plan.num_planned, plan.num_done) == (3, 2)
    assert {(member.seed, member.is_tuning) for member in members} == {(2, False)}
    assert {member.learning_rate for member in members} == chosen


def test_the_smallest_rate_is_taken_where_nothing_was_learned(
    tuned: Cell, context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(members: Any, device: torch.device, **how: Any) -> Any:
        if members[0].is_tuning:
            raise RuntimeError("no")
        return train_group(members, device, **how)

    monkeypatch.setattr(worker, "train_group", failing)
    (job,) = plan_of(tuned, range(1), context.results).jobs
    execute(job, context, 1)
    rows = Store.open(context.results, create=False).runs()

    assert set(rows[rows.role == "tuning"].status) == {"error"}
    assert list(rows[rows.role.isna()].lr) == [min(RATES)]


def test_a_job_that_fails_before_a_rate_is_chosen_makes_rows_without_one(tuned: Cell, context: RunContext) -> None:
    (job,) = plan_of(tuned, range(2), context.results).jobs
    store = Store.open(context.results, create=True)
    failure = Failure("contract", "ContractError", "it leaks")
    outcomes = worker.record_failure(job, failure, context, 1)

    rows = store.runs()
    assert [outcome.status for outcome in outcomes] == list(rows.status) == ["contract"] * 2
    assert rows.lr.isna().all()
    assert rows.role.isna().all()
    assert not plan_of(tuned, range(2), context.results).jobs


def test_the_rates_to_choose_from_name_the_row_and_the_chosen_one_does_not(tuned: Cell) -> None:
    other = cell_of(tuned.suite.model_copy(update={"tuning": TuningSettings(seeds=(7, 9))}), length=6, vocabulary=3)

    assert Member(tuned, 0, None).run_id == Member(tuned, 0, 1e-2).run_id
    assert Member(tuned, 0, None).run_id != Member(other, 0, None).run_id
    assert Member(tuned, 7, 1e-2, is_tuning=True).run_id != Member(tuned, 7, 1e-5, is_tuning=True).run_id


def test_a_seed_that_tunes_cannot_be_reported(tuned: Cell, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="seed 8 is one that suite 'paper' tunes on"):
        plan_of(tuned, range(8, 10), tmp_path / "none")


def test_models_are_tested_on_longer_sequences_alone_and_beside_other_tasks() -> None:
    suite = changed("evaluation", stretches=(2, 4), test_sequences=64)
    cells = [cell_of(suite, "copy", length=8, vocabulary=vocabulary) for vocabulary in (9, 3)]
    together = train_group([Member(cell, seed, 1e-2) for cell in cells for seed in (0, 1)], CPU).members

    for place, cell in enumerate(cells):
        assert {factor: length for factor, (_, length) in cell.tests.items()} == {1: 8, 2: 16, 4: 32}
        alone = train_group([Member(cell, seed, 1e-2) for seed in (0, 1)], CPU).members
        for single, beside in zip(alone, together[2 * place :], strict=False):
            assert single.score is not None
            # Fewer sequences as they get longer, so about as many tokens.
            scored = {factor: score.num_scored for factor, score in single.stretched.items()}
            assert scored == pytest.approx(dict.fromkeys((2, 4), single.score.num_scored), rel=0.2)
            assert beside.stretched[2].num_scored == single.stretched[2].num_scored
            assert beside.stretched[2].accuracy == pytest.approx(single.stretched[2].accuracy, abs=5e-3)
            assert beside.stretched[2].loss == pytest.approx(single.stretched[2].loss, rel=1e-4)


@pytest.mark.parametrize("mechanism", ["softmax", "cosformer", "slay"])
def test_a_stretched_model_is_the_trained_one_where_both_can_read(mechanism: str) -> None:
    """Unread rows of the position table and a longer rotation change nothing for a short sequence."""
    cell = cell_of(changed("evaluation", stretches=(2,)), mechanism=mechanism, length=8)
    trainer = Trainer([Member(cell, 3, 1e-2)], CPU)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.01)
    tokens = torch.randint(5, (1, 4, 8))
    column = torch.tensor([7])

    torch.testing.assert_close(trainer.stretched(trainer.members, 2)(tokens, column), trainer.model(tokens, column))


def test_every_cell_of_a_job_chooses_its_own_rate(tuned: Cell, context: RunContext) -> None:
    other = cell_of(tuned.suite, "copy", length=6, vocabulary=5)
    plan = make_plan([tuned, other], range(2), {}, 64, is_across_tasks=True)
    (job,) = plan.jobs
    outcomes = execute(job, context, 1)

    rows = Store.open(context.results, create=False).runs()
    assert [(outcome.task, outcome.seed) for outcome in outcomes] == [
        (cell.task_name, seed) for cell in (tuned, other) for seed in (0, 1)
    ]
    for cell in (tuned, other):
        of_cell = rows[rows.task == cell.task_name]
        means = of_cell[of_cell.role == "tuning"].groupby("lr").skill.mean()
        assert set(of_cell[of_cell.role.isna()].lr) == {means.idxmax()}
    assert set(rows[rows.role == "tuning"].ensemble_size) == {2 * len(RATES) * 2}
    assert set(rows[rows.role.isna()].ensemble_size) == {4}


def test_stretched_scores_and_what_shortcuts_reach_are_in_the_row(context: RunContext) -> None:
    suite = changed("evaluation", stretches=(2,)).model_copy(update={"tasks": {"parity_running": {"length": 16}}})
    cell = cell_of(suite, "parity_running")
    (job,) = plan_of(cell, range(1), context.results).jobs
    execute(job, context, 1)
    (row,) = Store.open(context.results, create=False).runs().to_dict("records")
    metrics = json.loads(row["metrics"])
    shortcuts = {name for name in metrics if name.startswith("shortcut.")}

    assert metrics["x2.score"] == row["score_ood"]
    assert metrics["x2.skill"] == pytest.approx((metrics["x2.score"] - row["floor"]) / (1 - row["floor"]))
    assert (row["lr_first"], row["lr"], row["lr_last"]) == (1e-3, 1e-3, 1e-3)
    assert row["floor"] <= row["local_ceiling"] < row["ceiling"]
    assert shortcuts == {f"shortcut.{name}" for name in cell.task.shortcuts(np.zeros((1, cell.length), dtype=int))}


def test_members_stop_once_they_have_solved_it_and_leave_the_others_alone() -> None:
    suite = changed("training", stop_at=0.95, steps=120)
    suite = suite.model_copy(update={"evaluation": suite.evaluation.model_copy(update={"curve_every": 5})})
    cell = cell_of(suite, "copy", length=6, vocabulary=3)
    fast, slow = train_group([Member(cell, 0, 1e-3), Member(cell, 1, 1e-5)], CPU).members
    (alone,) = train_group([Member(cell, 0, 1e-3)], CPU).members

    assert fast.stopped_at is not None
    assert fast.stopped_at < 120
    assert fast.curve[-1].step == fast.stopped_at == len(fast.rates)
    assert slow.stopped_at is None
    assert len(slow.rates) == 120
    assert alone.stopped_at == fast.stopped_at
    assert alone.score is not None
    assert fast.score is not None
    assert fast.score.accuracy == pytest.approx(alone.score.accuracy, abs=0.02)
