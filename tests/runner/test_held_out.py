"""The judge asks for what comes next, and what it measures of the answers is the score."""

import json
import math
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from synthbench.levels import levels_in
from synthbench.results import Store
from synthbench.runner import held_out
from synthbench.runner.held_out import (
    SAID,
    HeldOutTest,
    Questions,
    Result,
    answer,
    measured,
    questions_of,
    results_of,
    standard_error_of,
    write_inputs,
)
from synthbench.runner.plan import Job
from synthbench.tasks import IGNORE
from synthbench.training.ensemble import stack_models
from synthbench.training.train import build_models
from tests.results.rows import make_row
from tests.runner.runs import job_of
from tests.training.cells import make_cell

CPU = torch.device("cpu")


@pytest.mark.parametrize("task", ["copy", "majority", "parity", "bottleneck_compression"])
def test_no_question_holds_a_later_token_and_every_one_has_another_sequence(task: str) -> None:
    cell = make_cell(task, suite="smoke", limit=64, length=12)
    (some,) = questions_of(cell, "salt").values()
    (other,) = questions_of(cell, "another").values()
    last = some.places if cell.task.readout == "position" else np.full_like(some.places, cell.length - 1)

    assert len(some.places) == 64
    assert all((tokens[place + 1 :] == 0).all() for tokens, place in zip(some.inputs, last, strict=True))
    assert (some.targets != IGNORE).all()
    assert not np.array_equal(some.inputs, other.inputs)


def test_every_scored_place_is_equally_likely() -> None:
    """A task whose sequences score 1 to 4 places: a question is a draw from all places of all sequences."""
    cell = make_cell("copy", suite="smoke", limit=4096, length=12)
    task, length = cell.tests[1]
    drawn = task.sample(np.random.default_rng(0), 8192, length).targets != IGNORE
    (some,) = questions_of(cell, "salt").values()
    expected = drawn.sum(0) / drawn.sum()
    found = np.bincount(some.places, minlength=length) / len(some.places)

    assert np.abs(found - expected).max() < 5 * math.sqrt(expected.max() / len(some.places))


@pytest.mark.parametrize(("suite", "task"), [("smoke", "copy"), ("core", "parity_running"), ("text", "text")])
def test_the_judge_measures_what_the_model_predicts(suite: str, task: str, tmp_path: Path) -> None:
    runs = make_cell(task, suite=suite, limit=8).runs([0])[:2]
    asked = [questions_of(run.cell, run.run_id) for run in runs]
    for run, questions in zip(runs, asked, strict=True):
        write_inputs(questions, tmp_path, run.run_id)
    answer(stack_models(build_models(runs), "fold").eval(), runs, tmp_path, CPU)

    for run, questions, model in zip(runs, asked, build_models(runs), strict=True):
        results = results_of(questions, tmp_path, run.run_id)
        assert results is not None
        for number, some in questions.items():
            right, loss = [], []
            for tokens, place, target in zip(some.inputs, some.places.tolist(), some.targets.tolist(), strict=True):
                with torch.no_grad():
                    logits = model.eval()(torch.from_numpy(tokens[None, : place + 1]))[0, -1]
                right.append(int(logits.argmax()) == target)
                loss.append(-float(logits.log_softmax(-1)[target]))
            assert results[number].num_correct == sum(right)
            if results[number].loss is not None:
                assert results[number].loss == pytest.approx(np.mean(loss), abs=1e-4)
        assert (results[1].loss is None) == (suite != "text")


def test_every_level_is_asked_for_what_is_new_on_it() -> None:
    cell = make_cell("parity_running", suite="core", limit=8)
    questions = questions_of(cell, "salt")

    assert list(questions) == list(range(1, len(cell.levels) + 1))
    assert all(some.places.min() >= of.first_new for some, of in zip(questions.values(), cell.levels, strict=True))


def test_what_is_handed_out_has_no_targets(tmp_path: Path) -> None:
    write_inputs(questions_of(make_cell("copy", suite="smoke", limit=64, length=12), "salt"), tmp_path, "run")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.1.inputs", "run.1.places"]


@pytest.mark.parametrize("content", [None, b"", b"\0" * 5, b"\xff" * 10**6])
def test_answers_that_do_not_fit_are_none(content: bytes | None, tmp_path: Path) -> None:
    questions = questions_of(make_cell("copy", suite="smoke", limit=64, length=12), "salt")
    if content is not None:
        (tmp_path / "run.1.answers").write_bytes(content)

    assert results_of(questions, tmp_path, "run") is None


@pytest.mark.parametrize(("told", "loss"), [(np.nan, None), (np.inf, None), (100.0, pytest.approx(math.log(4)))])
def test_probabilities_are_divided_by_their_sum_if_they_have_one(
    told: float, loss: float | None, tmp_path: Path
) -> None:
    some = Questions(np.zeros((2, 3), np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64), 4)
    np.full((2, 4), told, "<f4").tofile(tmp_path / "run.1.answers")
    results = results_of({1: some}, tmp_path, "run")

    assert (results and results[1].loss) == loss


def test_a_model_that_answers_nothing_has_no_score() -> None:
    row = measured(make_row(), None)

    assert (row["status"], row["score"], row["n_correct"], row["eval_loss"]) == ("contract", None, None, None)
    assert "left no answers" in row["error_message"]
    assert measured(make_row(status="diverged", score=None), None)["status"] == "diverged"


def test_the_score_of_a_ladder_follows_from_what_was_measured_on_its_levels() -> None:
    levels = {f"rung{n}.{key}": value for n in (1, 2) for key, value in LEVEL.items()}
    said = make_row(metric_name="height over rungs", score=1.0, floor=0.0, ceiling=1.0, metrics=json.dumps(levels))
    results = {1: Result(128, 128, None, 0.01), 2: Result(96, 128, None, 0.04)}
    row = measured(said, results)

    assert row["score"] == pytest.approx((1 + 0.5) / 2)
    assert [level.score for level in levels_in(json.loads(row["metrics"]))] == [1.0, 0.75]
    assert standard_error_of(row, results) == pytest.approx(math.hypot(0.02, 0.08) / 2)


LEVEL = {"load": 2.0, "score": 1.0, "base": 0.5, "ceiling": 1.0}


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job of one run that passes for one of foreign code."""
    monkeypatch.setattr(held_out, "is_foreign", lambda _cell: True)
    return job_of(make_cell("copy", suite="smoke", limit=64, length=8), seeds=[0])


def test_only_a_jobs_rows_are_taken_from_its_store(tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "needs_held_out_test", lambda _cell: False)
    run_id = job.runs[0].run_id
    store, test = Store.open(tmp_path, create=True), HeldOutTest(tmp_path, "driver")
    test.begin(job)
    made = Store.open(held_out.folder_of(job, tmp_path, "driver"), create=True)
    for name in (run_id, "0" * 16):
        made.write_all([(make_row(run_id=name), [])])

    assert [row["run_id"] for row in test.take(job)] == [run_id]
    test.close()
    assert list(store.statuses()) == [run_id]


def test_what_a_killed_driver_leaves_of_its_tests_is_found(tmp_path: Path, job: Job) -> None:
    store, test = Store.open(tmp_path, create=True), HeldOutTest(tmp_path, "driver")
    test.begin(job)
    folder = held_out.folder_named(tmp_path, "driver")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        os.utime(path, (time.time() - 1e6,) * 2)

    assert {path.suffix for path in files} >= {".inputs", ".places"}
    assert store.stale_partials() == []
    assert test._held is not None
    test._held.close()  # as if the driver were killed
    assert store.stale_partials() == files
    test.close()
    assert not folder.exists()


def test_what_a_worker_says_is_a_remark_and_so_is_a_score_above_the_ceiling_of_its_task() -> None:
    said = make_row(score=0.99, n_correct=990, n_eval_examples=1000, ceiling=0.6, n_eval=64)
    row = measured(said, {1: Result(512, 512, None, 0.001)})

    assert (row["score"], row["n_correct"], row["n_eval_examples"]) == (1.0, 512, 512)
    assert json.loads(row["metrics"])[SAID] == 0.99
    assert row["note"] == "the score 1.0000 is above the ceiling of the task, 0.6000"
    assert measured(said, {1: Result(620, 1000, None, 0.01)})["note"] is None
