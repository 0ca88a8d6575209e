import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.tasks import TASKS, Task
from synthbench.training import evaluate as evaluation
from synthbench.training import stream
from synthbench.training.cell import Run
from synthbench.training.ensemble import SequenceModel
from synthbench.training.evaluate import Score
from synthbench.training.train import GroupResult, Trainer, train_group
from tests.training.cells import CPU, make_cell


def curve(result: GroupResult, index: int, split: str, metric: str) -> list[tuple[int, float]]:
    points = result.runs[index].curve
    return [(point.step, point.value) for point in points if (point.split, point.metric) == (split, metric)]


def test_training_lowers_the_loss_and_scores_every_run() -> None:
    cell = make_cell("copy", "linear", steps=60, limit=64, length=8)
    result = train_group([Run(cell, 0, 1e-2), Run(cell, 1, 1e-2)], CPU)

    for index, run in enumerate(result.runs):
        losses = [value for _, value in curve(result, index, "train", "loss")]
        assert losses[-1] < losses[0] / 2
        assert run.score is not None
        assert run.score.accuracy > 0.9
        assert run.score.num_scored == 64 * 8
        assert run.steps_to_threshold is not None
        assert run.steps_to_threshold <= 60


def test_the_curve_has_a_point_every_interval_and_at_the_end() -> None:
    result = train_group(make_cell(steps=50, length=4).runs([0]), CPU)

    for split, metric in (("train", "loss"), ("validation", "loss"), ("validation", "accuracy")):
        assert [step for step, _ in curve(result, 0, split, metric)] == [20, 40, 50]


@pytest.mark.parametrize("mechanism", ["softmax", "slay"])
def test_a_run_trains_the_same_alone_and_beside_others_of_its_task_and_of_other_tasks(mechanism: str) -> None:
    cells = [make_cell(task, mechanism, length=8) for task in ("parity", "reverse", "first_token")]
    assert len({cell.program for cell in cells}) == 1
    assert len({cell.task.vocab_size for cell in cells}) > 1
    runs = [run for cell in cells for run in cell.runs([0, 1])]

    together = train_group(runs, CPU)

    for beside in together.runs[1::2]:
        (alone,) = train_group([beside.run], CPU).runs
        assert beside.size == alone.size
        assert beside.train_loss == pytest.approx(alone.train_loss, rel=1e-5)
        assert beside.score is not None
        assert alone.score is not None
        assert beside.score.num_scored == alone.score.num_scored
        assert beside.score.accuracy == pytest.approx(alone.score.accuracy, abs=5e-3)
        assert beside.score.loss == pytest.approx(alone.score.loss, rel=1e-4)


def test_cells_that_differ_in_shape_or_protocol_share_no_program() -> None:
    cell = make_cell(length=8)
    others = [
        make_cell(length=9),
        make_cell(length=8, steps=5),
        make_cell(length=8, limit=31),
        make_cell(length=8, mechanism="linear"),
        make_cell(length=8, stretches=(2,)),
        replace(cell, task_name="bottleneck_compression", task_arguments={}),
    ]

    assert len({each.program for each in (cell, *others)}) == 7
    assert make_cell("copy", length=8).program == cell.program


def test_a_task_of_a_plugin_shares_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS, "is_built_in", lambda name: name == "copy")
    ours, theirs, others = (make_cell(task, length=8) for task in ("copy", "reverse", "parity"))

    assert len({cell.program for cell in (ours, theirs, others)}) == 3
    assert make_cell("reverse", length=8).program == theirs.program


@pytest.mark.parametrize("task", ["reverse", "induction"])
def test_a_step_in_pieces_is_the_step_of_the_whole_batch(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = make_cell(task, "slay", steps=3, length=8).runs([0, 1])
    whole, cut = Trainer(runs, CPU), Trainer(runs, CPU)
    forward = SequenceModel.forward
    sizes: list[int] = []

    def recorded(self: SequenceModel, tokens: Tensor, columns: Tensor | None = None) -> Tensor:
        sizes.append(tokens.shape[1])
        return forward(self, tokens, columns)

    monkeypatch.setattr(SequenceModel, "forward", recorded)
    for block in whole.training_batches():
        batch = block.inputs[0], block.targets[0], block.columns
        sizes.clear()
        losses = whole.step(*batch)
        with monkeypatch.context() as patch:
            patch.setitem(stream.TOKENS_AT_ONCE, "cpu", 2 * 8 * 7)
            losses_cut = cut.step(*batch)
        assert sizes[0] == sum(sizes[1:]) == batch[0].shape[1]
        assert max(sizes[1:]) <= 7
        torch.testing.assert_close(losses_cut, losses, rtol=1e-5, atol=0)


def test_a_diverged_run_has_no_score_and_the_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, steps = Trainer.step, itertools.count(1)

    def step(self: Trainer, *batch: Tensor) -> Tensor:
        losses = whole(self, *batch)
        if next(steps) >= 30:
            losses[0] = torch.nan
        return losses

    monkeypatch.setattr(Trainer, "step", step)
    diverged, healthy = train_group(make_cell(steps=60, length=4).runs([0, 1]), CPU).runs

    assert diverged.score is None
    assert diverged.diverged_at == 40
    assert {point.step for point in diverged.curve} == {20, 40}
    assert healthy.score is not None
    assert max(point.step for point in healthy.curve) == 60


def test_a_run_whose_test_loss_is_no_number_diverged_and_has_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(*given: Any, tasks: Sequence[Task] = (), **how: Any) -> list[Score]:
        scores = evaluation.evaluate(*given, tasks=tasks, **how)
        return [replace(scores[0], loss=math.nan), *scores[1:]] if tasks else scores  # only a test has tasks

    monkeypatch.setattr("synthbench.training.train.evaluate", evaluate)
    result = train_group(make_cell(steps=4, length=4).runs([0, 1]), CPU, keeps_predictions=True)
    diverged, healthy = result.runs

    assert (diverged.score, diverged.diverged_at, diverged.predictions) == (None, 4, None)
    assert healthy.score is not None


def test_what_a_row_says_of_the_model_is_counted_on_the_model() -> None:
    cell = make_cell("reverse", "softmax", length=8)
    result = train_group([Run(cell, 0, 1e-3)], CPU)
    width, vocabulary = 64, cell.task.vocab_size
    mixer = 2 * (width * 3 * width + 3 * width + width * width + width)

    (size,) = (run.size for run in result.runs)
    assert size.num_parameters_mixer == mixer
    assert size.num_parameters == mixer + vocabulary * width + 8 * width + width * vocabulary + vocabulary
    assert size.state_elements == 2 * 8 * width


def test_initial_embeddings_do_not_depend_on_the_mechanism() -> None:
    cells = [make_cell("stack", mechanism) for mechanism in ("softmax", "slay")]
    first, second = (Trainer([Run(cell, 3, 1e-3)], CPU) for cell in cells)

    assert cells[0].identity != cells[1].identity
    torch.testing.assert_close(first.model.embedding.weight, second.model.embedding.weight, rtol=0, atol=0)


@pytest.mark.parametrize("mechanism", ["rewa-geometric", "rewa-lsh"])
def test_what_a_mechanism_says_of_itself_is_in_the_metrics_of_each_run(mechanism: str) -> None:
    cell = make_cell("copy", mechanism, length=8)
    runs = [Run(cell, 0, 1e-2), Run(cell, 1, 1e-2)]
    first, second = [trained.metrics for trained in train_group(runs, CPU).runs]
    (alone,) = train_group(runs[1:], CPU).runs

    assert first
    assert len(first) % (2 * 4) == 0  # layers x heads
    assert first != second
    assert second == pytest.approx(alone.metrics, rel=1e-3, abs=1e-3)


def test_a_mechanism_that_says_nothing_has_no_metrics() -> None:
    assert train_group(make_cell("copy", "slay", length=4).runs([0]), CPU).runs[0].metrics == {}


def test_runs_stop_once_they_have_solved_it_and_leave_the_others_alone() -> None:
    cell = make_cell("copy", steps=120, stop_at=0.95, curve_every=5, length=6, vocabulary=3)
    fast, slow = train_group([Run(cell, 0, 1e-3), Run(cell, 1, 1e-5)], CPU).runs
    (alone,) = train_group([Run(cell, 0, 1e-3)], CPU).runs

    assert fast.stopped_at is not None
    assert fast.stopped_at < 120
    assert fast.curve[-1].step == fast.stopped_at == len(fast.rates)
    assert slow.stopped_at is None
    assert len(slow.rates) == 120
    assert alone.stopped_at == fast.stopped_at
    assert alone.score is not None
    assert fast.score is not None
    assert fast.score.accuracy == pytest.approx(alone.score.accuracy, abs=0.02)


# Tests out of the trained range


def test_models_are_tested_on_longer_sequences_alone_and_beside_other_tasks() -> None:
    settings: dict[str, Any] = {"stretches": (2, 4), "test_sequences": 64, "length": 8}
    cells = [make_cell("copy", vocabulary=vocabulary, **settings) for vocabulary in (9, 3)]
    together = train_group([Run(cell, seed, 1e-2) for cell in cells for seed in (0, 1)], CPU).runs

    for place, cell in enumerate(cells):
        assert {factor: length for factor, (_, length) in cell.tests.items()} == {1: 8, 2: 16, 4: 32}
        alone = train_group([Run(cell, seed, 1e-2) for seed in (0, 1)], CPU).runs
        for single, beside in zip(alone, together[2 * place :], strict=False):
            assert single.score is not None
            # Fewer sequences as they get longer, so about as many tokens.
            scored = {factor: score.num_scored for factor, score in single.stretched.items()}
            assert scored == pytest.approx(dict.fromkeys((2, 4), single.score.num_scored), rel=0.2)
            assert beside.stretched[2].num_scored == single.stretched[2].num_scored
            assert beside.stretched[2].accuracy == pytest.approx(single.stretched[2].accuracy, abs=5e-3)
            assert beside.stretched[2].loss == pytest.approx(single.stretched[2].loss, rel=1e-4, abs=1e-6)
