"""Models of a ladder are tested beyond the length that they were trained on, apart from their score."""

import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from synthbench.results import Store
from synthbench.suites import load_suite
from synthbench.tasks import IGNORE, TASKS, committed_bounds
from synthbench.training import ladder_scores, train
from synthbench.training.cell import Run
from synthbench.training.ladder import FACTORS_BEYOND, beyond
from synthbench.training.ladder_scores import metrics_beyond, with_committed_baselines
from synthbench.training.train import Trainer, train_group
from synthbench.trust.compare import judged
from synthbench.trust.verify import Sampling, verify
from tests.training.cells import CPU, on_ladder

CORE = load_suite("core")
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


def test_runs_of_two_tasks_are_tested_as_each_would_be_alone() -> None:
    # The same lengths and so one program; of other vocabularies, and beyond 256 tokens of other lengths too.
    cells = [on_ladder("string_copy", longest=16), on_ladder("odds_first", longest=16)]
    runs = [Run(cell, 1, 3e-3) for cell in cells]
    assert len({cell.program for cell in cells}) == 1
    for beside in train_group(runs, CPU).runs:
        (alone,) = train_group([beside.run], CPU).runs
        for factor in FACTORS_BEYOND:
            one, other = beside.beyond[factor], alone.beyond[factor]
            assert one is not None
            assert other is not None
            assert one.num_scored == other.num_scored
            assert one.loss == pytest.approx(other.loss, rel=1e-3)


@pytest.mark.parametrize("problem", [IndexError("row 17"), MemoryError()])
@pytest.mark.parametrize("is_built_in", [True, False])  # a built-in one has no excuse
def test_what_somebody_elses_mechanism_raises_beyond_costs_no_run_unless_memory_runs_out(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, *, is_built_in: bool
) -> None:
    def fail(*_arguments: Any, **_named: Any) -> None:
        raise problem

    trainer = Trainer([Run(on_ladder(longest=16), 1, 3e-3)], CPU)
    monkeypatch.setattr(train, "evaluate", fail)
    monkeypatch.setattr(train, "is_built_in", lambda _unit: is_built_in)
    is_kept = isinstance(problem, IndexError) and not is_built_in
    with nullcontext() if is_kept else pytest.raises(type(problem)):
        assert train._scores_beyond(trainer, trainer.runs, 2, 2) is None


def test_metrics_name_load_length_and_bounds_and_skill() -> None:
    levels = TASKS["parity_running"].ladder(256)
    found = metrics_beyond(levels, {2: 0.75, 4: None})
    bounds = committed_bounds(beyond(levels)[2])
    assert bounds is not None

    assert [found[f"x2.{name}"] for name in ("load", "length", "score")] == [512, 512, 0.75]
    assert (found["x2.floor"], found["x2.ceiling"]) == (bounds.base, bounds.ceiling)
    assert found["x2.skill"] == pytest.approx((0.75 - bounds.base) / (1 - bounds.base))
    assert (found["x4.length"], found["x4.score"], found["x4.skill"]) == (1024, None, None)
    assert metrics_beyond(TASKS["mqar"].ladder(256), {2: 0.5})["x2.load"] is None


def test_a_row_has_them_beside_its_score(made: Store) -> None:
    for row in made.table().to_pylist():
        metrics = json.loads(row["metrics"])
        assert [metrics[f"x{factor}.length"] for factor in (2, 4)] == [512, 1024]
        assert all(0 <= metrics[f"x{factor}.score"] <= 1 for factor in (2, 4))
        assert row["score_ood"] is None
        assert json.loads(with_committed_baselines(row)["metrics"]) == metrics


def test_a_baseline_that_is_found_later_lowers_the_skill_beyond_too(
    made: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = made.table().to_pylist()[0]
    before = json.loads(row["metrics"])
    monkeypatch.setattr(ladder_scores, "_bounds_beyond", lambda _level: (0.75, 1.0))
    after = json.loads(with_committed_baselines(row)["metrics"])
    assert after["x2.floor"] == 0.75
    assert after["x2.skill"] == pytest.approx((before["x2.score"] - 0.75) / 0.25)
    assert after["x2.score"] == before["x2.score"]


@pytest.mark.end_to_end
def test_rows_with_them_are_confirmed_and_rows_from_before_them_as_well(made: Store) -> None:
    verification = verify(made, Sampling(fraction=1.0, device="cpu", workers=0))
    assert {rerun.verdict for rerun in verification.reruns} == {"bitwise"}
    row = made.table().to_pylist()[0]
    kept = {name: value for name, value in json.loads(row["metrics"]).items() if name[:3] not in ("x2.", "x4.")}
    from_before = {**row, "metrics": json.dumps(kept)}
    assert judged(from_before, row, (None, None), 0.0)[0] == "bitwise"
    assert judged(row, from_before, (None, None), 0.0)[0] == "differs"
