"""A model learns the levels of a task: which it is trained on, what is scored, and what its row says."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

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
from synthbench.suites import load_suite
from synthbench.tasks import IGNORE, TASKS, Split, _recorded, level_bounds
from synthbench.training import ladder_scores
from synthbench.training.cell import Run
from synthbench.training.ladder import mixture
from synthbench.training.ladder_scores import rescored
from synthbench.training.sequences import draw
from synthbench.training.train import Trainer, on_levels, train_group
from synthbench.trust.audit import faults
from synthbench.trust.beside import join
from synthbench.trust.verify import Sampling, verify
from tests.training.cells import CPU, STEPS, make_cell, on_ladder


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


def test_all_mechanisms_read_the_same_batches_and_seeds_read_others() -> None:
    def batches(mechanism: str, seed: int) -> list[torch.Tensor]:
        trainer = Trainer([Run(on_ladder(mechanism=mechanism), seed, 1e-3)], CPU)
        return [batch.inputs for batch in trainer.training_batches()]

    first, same, other = batches("linear", 1), batches("lstm", 1), batches("linear", 2)
    assert len(first) == STEPS
    assert all(torch.equal(*pair) for pair in zip(first, same, strict=True))
    assert not any(torch.equal(*pair) for pair in zip(first, other, strict=True))


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
    """Rows of runs that are all but perfect on three levels, as longer training makes them."""
    metrics = rows["metrics"].map(json.loads)
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
    assert {row["lr"] for row in made.table().to_pylist()} == set(load_suite("core").training.learning_rates)
    for row in made.table().to_pylist():
        assert 0 <= json.loads(row["metrics"])["validation_accuracy"] <= 1
    trainer = Trainer(on_ladder().runs([1]), CPU)
    (validated, _), (tested, _) = (next(iter(on_levels(trainer, split))) for split in ("validation", "test"))
    assert validated.num_scored == tested.num_scored > 8 * len(on_ladder().levels)
    assert validated.loss != tested.loss


def test_a_height_that_its_levels_do_not_make_is_a_fault(made: Store) -> None:
    row = made.table().to_pylist()[0]
    metrics = json.loads(row["metrics"])
    metrics["rung1.score"] = 1.0 if metrics["rung1.score"] < 1 else 0.5
    altered = {**row, "metrics": canonical_json(metrics)}
    assert any("its 12 levels make it" in fault for fault in faults(altered, datetime.now(UTC)))
    altered["metrics"] = "{}"
    assert any("metrics has no levels" in fault for fault in faults(altered, datetime.now(UTC)))


def test_the_sequences_of_a_level_can_be_had() -> None:
    suite = load_suite("core")
    cell = on_ladder(steps=suite.training.steps)
    schedule = cell.ladder_schedule
    assert schedule is not None
    drawn = draw("parity_running:level=3", suite="core", seed=1)
    trainer = Trainer([Run(cell, 1, 1e-3)], CPU)
    blocks = trainer.batches("train", schedule.num_batches[2], schedule.batch_sizes[2], factor=3)
    own = torch.cat([block.inputs[:, 0] for block in blocks])
    assert np.array_equal(drawn.inputs, own.flatten(0, 1).numpy())
    for split in ("test", "validation"):
        tested = draw("parity_running:level=3", suite="core", seed=1, split=split)
        count = getattr(suite.evaluation, f"{split}_sequences")
        assert tested.inputs.shape == (count, schedule.levels[2].length)
        assert (tested.targets[:, : schedule.levels[2].first_new] == IGNORE).all()


def test_a_level_is_a_size_of_its_task_in_other_suites() -> None:
    cell = make_cell("string_copy", level=3)
    assert (cell.task, cell.length) == TASKS["string_copy"].ladder(256)[2][:2]
