"""Runs of a group: their curves, scores and metrics, alone and beside each other."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.positions import LearnedRotation
from synthbench.tasks import IGNORE, TASKS, Task
from synthbench.training import evaluate as evaluation
from synthbench.training import stream
from synthbench.training.cell import Cell, Run
from synthbench.training.ensemble import SequenceModel, stack_models
from synthbench.training.evaluate import NUM_BINS, Score, evaluate
from synthbench.training.stream import device_blocks
from synthbench.training.train import RunResult, Trainer, build_models, init_generator, train_group
from tests.training.cells import CPU, make_cell, on_ladder


def score_of(result: RunResult) -> Score:
    assert result.score is not None
    return result.score


def test_the_curve_has_a_point_every_interval_and_at_the_end() -> None:
    (run,) = train_group(make_cell(steps=50, length=4).runs([0]), CPU).runs

    for of in (("train", "loss"), ("validation", "loss"), ("validation", "accuracy")):
        assert [point.step for point in run.curve if (point.split, point.metric) == of] == [20, 40, 50]


def measured(result: RunResult) -> dict[str, float]:
    """All numbers of a run but those of its curve."""
    scores: dict[Any, Score | None] = {"test": result.score, **result.stretched, **result.beyond}
    of_scores = {
        f"{name} {part}": getattr(score, part)
        for name, score in scores.items()
        if score is not None
        for part in ("loss", "accuracy", "num_scored")
    }
    metrics = {name: value for name, value in result.metrics.items() if value is not None}
    return {"train loss": result.train_loss, **of_scores, **metrics}


LONGER: dict[str, Any] = {"stretches": (2, 4), "test_sequences": 64, "length": 8}
SHIFTED: dict[str, Any] = {"suite": "positions", "steps": 2, "limit": 8, "batch_size": 8}
BESIDE: dict[str, tuple[list[Cell], float]] = {
    "tasks of softmax": ([make_cell(task, length=8) for task in ("parity", "reverse", "first_token")], 1e-4),
    "tasks of slay": ([make_cell(task, "slay", length=8) for task in ("parity", "reverse", "first_token")], 1e-4),
    "longer": ([make_cell("copy", vocabulary=vocabulary, **LONGER) for vocabulary in (9, 3)], 1e-4),
    # Beyond 256 tokens, these two have other lengths.
    "beyond a ladder": ([on_ladder(task, longest=16) for task in ("string_copy", "odds_first")], 1e-3),
    "of other layers": ([make_cell(task, "softmax+slay", length=8) for task in ("parity", "reverse")], 1e-4),
    "in steps": ([make_cell(task, length=64) for task in ("permutation_hops", "interleaved_stacks")], 1e-4),
    **{name: ([make_cell("copy", name, length=8)], 1e-3) for name in ("rewa-geometric", "rewa-lsh")},
    **{
        f"moved {name}": ([make_cell("grid_neighbours", name, positions="espr:commuting=false", **SHIFTED)], 1e-4)
        for name in ("softmax", "performer-exp")
    },
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_run_has_what_it_has_alone_beside_others_of_its_task_and_of_other_tasks(name: str) -> None:
    cells, rel = BESIDE[name]
    assert len({cell.program for cell in cells}) == 1
    assert len({cell.task.vocab_size for cell in cells}) > 1 or not name.startswith("tasks")

    for beside in train_group([run for cell in cells for run in cell.runs([0, 1])], CPU).runs[1::2]:
        (alone,) = train_group([beside.run], CPU).runs
        found, expected = measured(beside), measured(alone)
        assert beside.size == alone.size
        assert list(found) == list(expected)
        for what, number in expected.items():
            if "decoded" in what or what.endswith(("accuracy", "score")):
                allowed = pytest.approx(number, abs=0.05 if "decoded" in what else 5e-3)
            else:
                of_this = rel / 10 if what == "train loss" else rel
                allowed = pytest.approx(number, rel=of_this, abs=1e-3 if "rewa" in name else 1e-6)
            assert found[what] == allowed, what


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
    forward = create_autospec(SequenceModel.forward, side_effect=SequenceModel.forward)
    monkeypatch.setattr(SequenceModel, "forward", forward)
    for block in whole.training_batches():
        batch = block.inputs[0], block.targets[0], block.columns
        forward.reset_mock()
        losses = whole.step(*batch)
        with monkeypatch.context() as patch:
            patch.setitem(stream.TOKENS_AT_ONCE, "cpu", 2 * 8 * 7)
            losses_cut = cut.step(*batch)
        sizes = [call.args[1].shape[1] for call in forward.call_args_list]
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


@pytest.mark.parametrize(("mechanism", "num_metrics"), [("slay", 0), ("rewa-geometric", 5), ("rewa-lsh", 6)])
def test_what_a_mechanism_says_of_itself_is_in_the_metrics_of_each_run(mechanism: str, num_metrics: int) -> None:
    first, second = (run.metrics for run in train_group(make_cell("copy", mechanism, length=8).runs([0, 1]), CPU).runs)

    assert len(first) == len(second) == 2 * 4 * num_metrics  # layers x heads
    assert first != second or not num_metrics


def test_runs_stop_once_they_have_solved_it_and_leave_the_others_alone() -> None:
    cell = make_cell("copy", steps=120, stop_at=0.95, curve_every=5, length=6, vocabulary=3)
    fast, slow = train_group([Run(cell, 0, 1e-3), Run(cell, 1, 1e-5)], CPU).runs
    (alone,) = train_group([Run(cell, 0, 1e-3)], CPU).runs

    assert fast.stopped_at is not None
    assert fast.stopped_at < 120
    assert fast.steps_to_threshold is not None
    assert fast.curve[-1].step == fast.stopped_at == len(fast.rates)
    assert slow.stopped_at is None
    assert len(slow.rates) == 120
    assert alone.stopped_at == fast.stopped_at
    assert score_of(fast).accuracy == pytest.approx(score_of(alone).accuracy, abs=0.02)


def test_models_are_tested_on_longer_sequences_fewer_as_they_get_longer() -> None:
    cell = make_cell("copy", **LONGER)
    (result,) = train_group(cell.runs([0]), CPU).runs

    assert {factor: length for factor, (_, length) in cell.tests.items()} == {1: 8, 2: 16, 4: 32}
    scored = {factor: score.num_scored for factor, score in result.stretched.items()}
    assert scored == pytest.approx(dict.fromkeys((2, 4), score_of(result).num_scored), rel=0.2)


@pytest.mark.parametrize(
    ("task", "tokens_at_once"), [("reverse", 1), ("first_token", 100), ("distant_match", 10**9), ("kv_recall", 100)]
)
def test_scores_are_counted_over_all_sequences(task: str, tokens_at_once: int) -> None:
    cell = make_cell(task, "linear", length=10)
    model = stack_models(build_models(cell.runs([0, 1])), "fold")
    blocks = list(device_blocks(cell.runs([0, 1]), "test", num_batches=2, batch_size=20, device=CPU))

    scores = evaluate(model, blocks, tokens_at_once=tokens_at_once)

    for run, score in enumerate(scores):
        inputs, targets, columns = blocks[0]
        with torch.no_grad():
            logits = torch.stack([model(batch, columns)[run] for batch in inputs])
        labels = targets[:, run]
        is_scored = labels != IGNORE
        hits = (logits.argmax(-1) == labels) & is_scored
        per_sequence = (hits.sum(-1) / is_scored.sum(-1))[is_scored.any(-1)].double().numpy()
        assert score.num_scored == int(is_scored.sum())
        assert score.num_correct == int(hits.sum())
        assert score.accuracy == score.num_correct / score.num_scored
        assert score.std_over_sequences == pytest.approx(np.std(per_sequence), abs=1e-6)
        expected_loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORE)
        assert score.loss == pytest.approx(expected_loss.item(), rel=1e-5)


def test_a_layer_may_take_gradients_while_a_model_is_evaluated() -> None:
    runs = make_cell("reverse", "linear", length=10).runs([0])
    model, slopes = stack_models(build_models(runs), "fold"), list[Tensor]()

    def descend(_layer: object, inputs: tuple[Tensor]) -> None:
        with torch.enable_grad():
            start = inputs[0].detach().requires_grad_()
            slopes.extend(torch.autograd.grad(start.square().sum(), start))

    model.head.register_forward_pre_hook(descend)
    evaluate(model, device_blocks(runs, "test", num_batches=1, batch_size=4, device=CPU))

    assert slopes


@pytest.mark.parametrize("tokens_at_once", [200, 10**9])
def test_calibration_compares_confidence_with_accuracy_in_bins(tokens_at_once: int) -> None:
    cell = make_cell("text", "linear", length=16)
    runs = cell.runs([0, 1])
    model = stack_models(build_models(runs), "fold")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that confidences fall into several bins
    block = next(device_blocks(runs, "test", num_batches=1, batch_size=40, device=CPU))

    scores = evaluate(model, [block], tokens_at_once=tokens_at_once, tasks=[cell.task] * 2)

    with torch.no_grad():
        probabilities = model(block.inputs[0], block.columns).softmax(-1).double()
    for run, score in enumerate(scores):
        confidence, tokens = (part.flatten().numpy() for part in probabilities[run].max(-1))
        is_right = tokens == block.targets[0, run].flatten().numpy()
        bins = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
        gaps = [abs(is_right[bins == one].sum() - confidence[bins == one].sum()) for one in set(bins.tolist())]
        assert len(gaps) > 3
        assert score.calibration_error == pytest.approx(sum(gaps) / len(bins), abs=1e-6)


SHIFTS = (1, 7, 100)
"""Those of suite ``positions``."""


def cell_of(positions: str, **changes: Any) -> Cell:
    return make_cell("grid_neighbours", positions=positions, **SHIFTED, **changes)


def trained(positions: str) -> RunResult:
    (result,) = train_group(cell_of(positions).runs([1]), CPU).runs
    return result


def test_no_id_has_the_shifts_that_a_suite_asks_for() -> None:
    assert cell_of("string").identity == cell_of("string", shifts=None).identity


@pytest.mark.parametrize("positions", ["none", "rope", "string", "espr"])
def test_what_sees_offsets_alone_keeps_its_loss_when_all_coordinates_move(positions: str) -> None:
    result = trained(positions)
    assert result.score is not None
    found: dict[str, Any] = result.metrics

    for shift in SHIFTS:
        # Float32 rounds the angles of later places in another way.
        assert found[f"shift{shift}.loss"] == pytest.approx(result.score.loss, abs=1e-3)
    if positions == "string":
        assert found["ir_spec"] == pytest.approx(0, abs=1e-12)
    elif positions == "espr":
        assert found["ir_spec"] > 0.01
    else:
        assert "ir_spec" not in found


def test_a_learned_table_has_no_moved_scores() -> None:
    assert trained("learned").metrics == {
        f"shift{shift}.{name}": None for shift in SHIFTS for name in ("score", "loss")
    }
    with pytest.raises(UsageError, match=r"coordinates move by 7; allowed with positions 'learned': 0.* 56 tokens"):
        cell_of("learned").model(init_generator(1), shift=7)


def test_coordinates_of_moved_models_are_moved() -> None:
    trainer = Trainer(cell_of("espr").runs([1]), CPU)
    models = (trainer.model, trainer.stretched(trainer.runs, 1, shift=7))
    here, there = ([part for part in of.modules() if isinstance(part, LearnedRotation)] for of in models)
    assert torch.equal(there[0].coordinates, here[0].coordinates + 7)
