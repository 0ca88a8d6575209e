"""A model learns the levels of a task: which it is trained and scored on, tests beyond them, and what its row says."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from synthbench.canonical import canonical_json
from synthbench.levels import ladder_score, levels_in
from synthbench.loading import load
from synthbench.results import Store
from synthbench.runner.run import run
from synthbench.suites import load_suite
from synthbench.tasks import IGNORE, TASKS, Split, _recorded, committed_bounds, level_bounds
from synthbench.training import ladder_scores, train
from synthbench.training.cell import Run
from synthbench.training.ladder import FACTORS_BEYOND, beyond, mixture
from synthbench.training.ladder_scores import metrics_beyond, rescored, with_committed_baselines
from synthbench.training.train import Trainer, on_levels, train_group
from synthbench.trust.audit import faults
from synthbench.trust.beside import join
from synthbench.trust.compare import judged
from synthbench.trust.verify import Sampling, verify
from tests.results.stores import reader
from tests.runner.runs import tiny
from tests.training.cells import CPU, STEPS, make_cell, on_ladder

CORE = load_suite("core")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The rows of a ladder's runs: two seeds at two rates."""
    root = tmp_path_factory.mktemp("climbed") / "results"
    assert run(
        tiny(root, suite="core", tasks=("parity_running",), seeds=(1, 2), steps=STEPS, limit=8, executor="inline")
    ).ok
    return reader(root)


@settings(max_examples=40)
@given(num_steps=st.integers(200, 2000), num_levels=st.integers(1, 16))
def test_steps_are_spread_over_all_levels_low_ones_more_often(num_steps: int, num_levels: int) -> None:
    order = mixture(num_steps, num_levels)
    wanted = np.diff(np.sqrt(np.arange(num_levels + 1) / num_levels))
    counts = np.bincount(order, minlength=num_levels)
    assert len(order) == num_steps
    assert counts == pytest.approx(num_steps * wanted, abs=5)
    # So they are in every part of the training.
    assert np.bincount(order[-200:], minlength=num_levels) == pytest.approx(200 * wanted, abs=5)


def test_steps_have_tokens_enough_sequences_enough_and_answers_enough() -> None:
    schedule = on_ladder("parity_final").ladder_schedule
    assert schedule is not None
    ladder, training = schedule.ladder, schedule.training
    for level, size in zip(schedule.levels, schedule.batch_sizes, strict=True):
        wanted = (
            training.batch_size,
            ladder.batch_tokens // level.length,
            ladder.batch_answers / level_bounds(level).answers,
        )
        assert size - 1 < max(wanted) <= size
    sequences = np.multiply(schedule.num_batches, schedule.batch_sizes)
    assert sum(schedule.num_batches) == STEPS
    assert schedule.sequences(STEPS) == sequences.sum()
    assert schedule.tokens(STEPS) == np.dot(sequences, [level.length for level in schedule.levels])


def test_a_suite_can_ask_for_harder_levels_which_name_other_runs() -> None:
    harder = on_ladder("mqar")
    loads = [level.load for level in harder.levels]
    assert (len(loads), loads[-3:]) == (11, [32, 48, 64])
    assert [level["load"] for level in harder.resolved_task_arguments["rungs"]] == loads
    assert harder.identity != on_ladder("mqar", extended=False).identity
    # A task without harder levels has the same runs.
    assert on_ladder().identity == on_ladder(extended=False).identity


def test_the_lower_part_of_a_level_is_trained_and_not_scored() -> None:
    trainer = Trainer([Run(on_ladder(), 1, 1e-3)], CPU)
    for number, level in enumerate(on_ladder().levels, start=1):
        firsts: dict[Split, int] = {"train": 0, "test": level.first_new}
        for split, first in firsts.items():
            (block,) = trainer.batches(split, 1, 2, factor=number)
            assert block.columns.tolist() == list(range(first, level.length))


def test_a_run_that_diverges_has_no_levels() -> None:
    (run,) = train_group([Run(on_ladder(longest=8), 1, 1e20)], CPU).runs
    assert run.diverged_at is not None
    assert (run.score, run.levels, run.beyond) == (None, [], {})


def test_a_row_says_how_high_it_climbed_and_what_is_on_every_level(made: Store) -> None:
    levels, schedule = on_ladder().levels, on_ladder().ladder_schedule
    assert schedule is not None
    for row in made.table().to_pylist():
        stored = levels_in(json.loads(row["metrics"]))
        bases = [(level.load, level_bounds(level).base) for level in levels]
        assert [(level.load, level.base) for level in stored] == bases
        assert row["metric_name"] == "height over rungs"
        assert row["score"] == row["skill"] == ladder_score(stored)
        assert row["seq_len"] == levels[-1].length
        arguments = json.loads(row["task_args"])
        assert arguments["load"] == TASKS["parity_running"].load
        assert [level["load"] for level in arguments["rungs"]] == [level.load for level in levels]
        assert row["n_train"] == schedule.sequences(STEPS)
        assert faults(row, datetime.now(UTC)) == []


@pytest.fixture
def higher_baselines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A shortcut of the last third of the room is found on every level of the task."""
    entries = dict(_recorded.entries())
    for level in on_ladder().levels:
        entry, bound = entries[_recorded.level_key(level)], level_bounds(level)
        found = bound.ceiling - (bound.ceiling - bound.base) / 3
        entries[_recorded.level_key(level)] = {**entry, "bases": {**entry["bases"], "found later": found}}
    monkeypatch.setattr(_recorded, "entries", lambda: entries)
    cached = (level_bounds, ladder_scores._levels_of, ladder_scores._bounds_of)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


@pytest.mark.usefixtures("higher_baselines")
def test_a_score_is_counted_from_the_committed_baselines_whenever_the_row_was_made(made: Store) -> None:
    stored = _with_first_levels_solved(made.runs())
    rows = rescored(stored)

    for before, now in zip(stored.to_dict("records"), rows.to_dict("records"), strict=True):
        reached = [level.skill for level in levels_in(json.loads(before["metrics"]))]
        levels = levels_in(json.loads(now["metrics"]))
        assert [level.skill for level in levels] == pytest.approx([1 + 3 * (skill - 1) for skill in reached])
        assert now["score"] == now["skill"] == ladder_score(levels) < before["score"]
    changed = ["metrics", "score", "skill"]
    pd.testing.assert_frame_equal(rows.drop(columns=changed), stored.drop(columns=changed))
    read = rescored(made.runs())["metrics"].to_list()
    assert read != made.runs()["metrics"].to_list()
    assert load(made.root, ["seed", "metrics"])["metrics"].to_list() == read
    assert join(made.root, has_packaged=False).rows["metrics"].to_list() == read


def _with_first_levels_solved(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of runs that are all but perfect on three levels, as longer training makes them, and have an odd metric."""
    metrics = rows["metrics"].map(json.loads).map(lambda of: of | {"\ud800": 0.5})  # not every parser reads that
    metrics = metrics.map(lambda of: of | {f"rung{number}.score": 1.0 - 0.01 * number for number in (1, 2, 3)})
    scores = [ladder_score(levels_in(of)) for of in metrics]
    return rows.assign(metrics=metrics.map(canonical_json), score=scores, skill=scores)


@pytest.mark.end_to_end
@pytest.mark.usefixtures("higher_baselines")
def test_a_row_from_before_a_shortcut_was_found_is_confirmed(made: Store) -> None:
    reruns = verify(made, Sampling(fraction=1.0, device="cpu", workers=0)).reruns  # here, with those baselines
    assert {rerun.verdict for rerun in reruns} == {"bitwise"}
    assert all(rerun.detail.endswith("which was counted from other baselines") for rerun in reruns)


@pytest.mark.parametrize(
    "changes",
    [
        {"task_version": "99"},
        {"task": "a_task_of_a_plugin"},
        {"task_args": "{}"},
        {"task_args": '{"rungs":[{"task":{"nothing":1},"length":4,"load":4,"first_new":0}]}'},
        {"metric_name": "accuracy"},
        {"status": "diverged", "metrics": "{}", "score": None, "skill": None},
    ],
)
@pytest.mark.usefixtures("higher_baselines")
def test_a_row_of_a_task_without_committed_baselines_keeps_its_score(made: Store, changes: dict[str, Any]) -> None:
    rows = made.runs().assign(**changes)
    assert rescored(rows) is rows


def test_rates_are_chosen_on_sequences_of_their_own(made: Store) -> None:
    assert {row["lr"] for row in made.table().to_pylist()} == set(CORE.training.learning_rates)
    for row in made.table().to_pylist():
        assert 0 <= json.loads(row["metrics"])["validation_accuracy"] <= 1
    trainer = Trainer(on_ladder().runs([1]), CPU)
    (validated, _), (tested, _) = (next(iter(on_levels(trainer, split))) for split in ("validation", "test"))
    assert validated.num_scored == tested.num_scored > 8 * len(on_ladder().levels)
    assert validated.loss != tested.loss


def test_a_level_is_a_size_of_its_task_in_other_suites() -> None:
    cell = make_cell("string_copy", level=3)
    assert (cell.task, cell.length) == TASKS["string_copy"].ladder(256)[2][:2]


ON_LADDERS = [name for name in TASKS if TASKS[name].ladder(256)]


@pytest.mark.parametrize("task", ON_LADDERS)
def test_a_test_beyond_has_longer_sequences_of_trained_tokens(task: str) -> None:
    assert task not in CORE.tasks or tuple(beyond(TASKS[task].ladder(256))) == FACTORS_BEYOND
    levels = TASKS[task].ladder(64) or TASKS[task].ladder(128)
    longest = max(level.length for level in levels)
    rng = np.random.default_rng(1)
    trained = [level.task.sample(rng, 128, level.length) for level in levels]
    for factor, level in beyond(levels).items():
        inputs, targets = level.task.sample(rng, 64, level.length)
        scored = level.new_targets(targets)
        assert longest < level.length <= factor * longest
        assert level.task.vocab_size == levels[-1].task.vocab_size
        assert (scored != IGNORE).any()
        # Of rare tokens the samples may show other ones.
        assert np.isin(inputs, np.unique(np.concatenate([batch.inputs.ravel() for batch in trained]))).mean() > 0.999
        if levels[-1].first_new:
            assert level.first_new >= longest


def test_a_level_of_the_tasks_own_is_taken_and_else_the_last_one_stretched() -> None:
    own = beyond(TASKS["parity_running"].ladder(256))
    stretched = beyond(TASKS["mqar"].ladder(256))

    assert [level[1:] for level in own.values()] == [(512, 512, 384), (1024, 1024, 768)]
    assert [level[1:] for level in stretched.values()] == [(256, 0, 0), (512, 0, 0)]
    # Another 32 pairs would need keys that no level has.
    assert {level.task for level in stretched.values()} == {TASKS["mqar"].ladder(256)[-1].task}


def test_only_positions_beyond_the_trained_length_are_scored() -> None:
    trainer = Trainer([Run(on_ladder(longest=16), 1, 1e-3)], CPU)
    for factor, places in ((2, range(24, 32)), (4, range(48, 64))):
        (block,) = trainer.batches("test", 1, 2, factor=factor, is_beyond=True)
        assert block.columns.tolist() == list(places)


def test_a_run_is_named_and_scored_without_its_tests_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    (with_them,) = train_group([Run(on_ladder(longest=16), 1, 3e-3)], CPU).runs
    monkeypatch.setattr("synthbench.training.ladder.FACTORS_BEYOND", ())
    (without,) = train_group([Run(on_ladder(longest=16), 1, 3e-3)], CPU).runs

    assert with_them.run.run_id == without.run.run_id
    assert (with_them.score, with_them.levels) == (without.score, without.levels)
    assert (set(with_them.beyond), set(without.beyond)) == ({2, 4}, set())


@pytest.mark.parametrize("mechanism", sorted(CORE.mechanisms))
def test_every_mechanism_of_core_is_tested_or_says_that_it_reads_no_more(mechanism: str) -> None:
    trainer = Trainer([Run(on_ladder(mechanism=mechanism, longest=8), 3, 1e-2)], CPU)
    column, tokens = torch.tensor([7]), torch.randint(2, (1, 4, 8))

    assert (train._scores_beyond(trainer, trainer.runs, 4, 2) is None) == (mechanism == "cosformer")
    # It is the trained model, whatever the length that it is built for.
    torch.testing.assert_close(trainer.stretched(trainer.runs, 4)(tokens, column), trainer.model(tokens, column))


def test_a_learned_table_of_positions_has_no_rows_beyond_and_the_run_is_kept() -> None:
    (result,) = train_group([Run(on_ladder(longest=8, positions="learned"), 1, 3e-3)], CPU).runs
    assert result.beyond == {2: None, 4: None}
    assert result.score is not None


@pytest.mark.parametrize("problem", [IndexError("row 17"), MemoryError()])
@pytest.mark.parametrize("is_built_in", [True, False])  # a built-in one has no excuse
def test_what_somebody_elses_mechanism_raises_beyond_costs_no_run_unless_memory_runs_out(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, *, is_built_in: bool
) -> None:
    trainer = Trainer([Run(on_ladder(longest=16), 1, 3e-3)], CPU)
    monkeypatch.setattr(train, "evaluate", Mock(side_effect=problem))
    monkeypatch.setattr(train, "is_built_in", lambda _unit: is_built_in)
    is_kept = isinstance(problem, IndexError) and not is_built_in
    with nullcontext() if is_kept else pytest.raises(type(problem)):
        assert train._scores_beyond(trainer, trainer.runs, 2, 2) is None


def test_a_row_has_metrics_beyond_beside_its_score(made: Store) -> None:
    """Load and length, and from the committed bounds the skill."""
    levels = TASKS["parity_running"].ladder(256)
    bounds = committed_bounds(beyond(levels)[2])
    assert bounds is not None
    for row in made.table().to_pylist():
        metrics = json.loads(row["metrics"])
        score = metrics["x2.score"]
        assert [metrics[f"x{factor}.{of}"] for factor in (2, 4) for of in ("load", "length")] == [512, 512, 1024, 1024]
        assert (metrics["x2.floor"], metrics["x2.ceiling"]) == (bounds.base, bounds.ceiling)
        assert metrics["x2.skill"] == pytest.approx((score - bounds.base) / (1 - bounds.base))
        assert 0 <= score <= 1
        assert row["score_ood"] is None
        assert json.loads(with_committed_baselines(row)["metrics"]) == metrics
    unread = metrics_beyond(levels, {4: None})
    assert (unread["x4.length"], unread["x4.score"], unread["x4.skill"]) == (1024, None, None)
    assert metrics_beyond(TASKS["mqar"].ladder(256), {2: 0.5})["x2.load"] is None


def test_a_baseline_found_later_lowers_the_skill_beyond_too(made: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    row = made.table().to_pylist()[0]
    before = json.loads(row["metrics"])
    monkeypatch.setattr(ladder_scores, "_bounds_beyond", lambda _level: (0.75, 1.0))
    after = json.loads(with_committed_baselines(row)["metrics"])
    assert after["x2.floor"] == 0.75
    assert after["x2.skill"] == pytest.approx((before["x2.score"] - 0.75) / 0.25)
    assert after["x2.score"] == before["x2.score"]


def test_rows_from_before_them_are_confirmed(made: Store) -> None:
    row = made.table().to_pylist()[0]
    kept = {name: value for name, value in json.loads(row["metrics"]).items() if name[:3] not in ("x2.", "x4.")}
    from_before = {**row, "metrics": json.dumps(kept)}
    assert judged(from_before, row, (None, None), 0.0)[0] == "bitwise"
    assert judged(row, from_before, (None, None), 0.0)[0] == "differs"
