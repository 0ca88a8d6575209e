"""Models of bags: one answer for a set of targets, in loss, score, ranking, predictions and the second test."""

from pathlib import Path

import numpy as np
import pytest
import torch

from synthbench.runner.plan import make_cells, shortened
from synthbench.suites import load_suite
from synthbench.tasks import IGNORE
from synthbench.tasks.real._ranking import propensities, ranking_scores
from synthbench.tasks.real.labels import Labels
from synthbench.training.cell import Cell, Member
from synthbench.training.ensemble import stack_models
from synthbench.training.evaluate import evaluate, summed_losses
from synthbench.training.exam import answer, hand_out, marks_of, papers_of
from synthbench.training.prototypes import BagModel
from synthbench.training.stream import device_blocks
from synthbench.training.train import build_models, train_group
from tests.tasks._files import NUM_LABELS, drawn, text_of, write

CPU = torch.device("cpu")
LENGTH = 8


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(write(tmp_path / "files", text_of(drawn(400)), text_of(drawn(100, seed=1))))


def cell_of(path: str, mechanism: str = "softmax", *, steps: int = 4, limit: int = 50) -> Cell:
    suite = shortened(load_suite("labels"), steps=steps, limit=limit)
    task = {"labels": {"path": path, "length": str(LENGTH)}}
    (cell,) = make_cells(suite, task, {mechanism: {}}, device_type="cpu", is_full=False)
    return cell


def test_the_loss_of_a_set_is_that_of_each_of_its_labels() -> None:
    logits = torch.randn(2, 3, 1, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[[0, 3, IGNORE], [1, IGNORE, IGNORE], [4, 2, 0]], [[IGNORE] * 3] * 3])
    log_probabilities = logits[:, :, 0].log_softmax(-1)
    expected = 0.0
    for document, labels in enumerate([(0, 3), (1,), (4, 2, 0)]):
        for label in labels:
            expected -= log_probabilities[0, document, label].item()

    losses = summed_losses(logits, targets)
    assert losses.tolist() == pytest.approx([expected, 0])
    # A set of one label is what a single target is.
    alone = torch.tensor([[[3], [1], [4]]])
    both = torch.nn.functional.pad(alone, (0, 1), value=IGNORE)
    torch.testing.assert_close(summed_losses(logits[:1], alone), summed_losses(logits[:1], both))


@pytest.mark.parametrize("tokens_at_once", [1, 100, 10**9])
def test_a_document_is_scored_once_and_right_if_its_answer_is_one_of_its_labels(path: str, tokens_at_once: int) -> None:
    members = cell_of(path).members([1, 2])[:2]
    model = stack_models(build_models(members), "loop")
    block = next(iter(device_blocks(members, "test", num_batches=1, batch_size=100, device=CPU)))
    predicted: list[torch.Tensor] = []
    ranked: list[torch.Tensor] = []
    scores = evaluate(model, [block], predicted=predicted, ranked=ranked, tokens_at_once=tokens_at_once)

    with torch.no_grad():
        logits = model(block.inputs[0])[:, :, 0]
    for member, score in enumerate(scores):
        sets = [{int(label) for label in row if label != IGNORE} for row in block.targets[0, member]]
        hits = sum(int(best) in labels for best, labels in zip(logits[member].argmax(-1), sets, strict=True))
        losses = -logits[member].log_softmax(-1)
        nats = [losses[document, label].item() for document, labels in enumerate(sets) for label in labels]
        assert (score.num_correct, score.num_scored) == (hits, 100)
        assert score.accuracy == hits / 100
        assert score.loss == pytest.approx(np.mean(nats), rel=1e-5)
    assert torch.equal(torch.cat(ranked, 1), logits.topk(5).indices)
    assert torch.equal(torch.cat(predicted, 1), logits.argmax(-1, keepdim=True).expand(2, 100, block.targets.shape[-1]))


@pytest.mark.parametrize("mechanism", ["softmax", "yat"])
def test_training_finds_labels_that_follow_from_features(path: str, mechanism: str) -> None:
    cell = cell_of(path, mechanism, steps=150, limit=100)
    result = train_group([Member(cell, seed, 3e-2) for seed in (1, 2)], CPU, keeps_predictions=True)
    test = cell.task.of_split("test")

    for member in result.members:
        losses = [point.value for point in member.curve if (point.split, point.metric) == ("train", "loss")]
        assert losses[-1] < losses[0]
        assert member.score is not None
        assert member.score.accuracy > test.floor(LENGTH).value + 0.1
        assert member.metrics["P@1"] == pytest.approx(member.score.accuracy)
        found = {name: value for name, value in member.metrics.items() if value is not None}
        assert found["P@1"] > found["P@3"] > found["P@5"]
        assert 0 < found["PSP@5"] <= 1 < found["unnormalised PSP@1"]
        assert {"prototypes.alpha", "prototypes.growth", "prototypes.inverted_accuracy"} < set(member.metrics)
        assert member.predictions is not None
        assert member.predictions.shape == (100, LENGTH)
        assert member.size.num_parameters_mixer == NUM_LABELS * 64 + 1


def test_the_numbers_of_a_ranking_are_those_of_the_labels_of_the_test(path: str) -> None:
    cell = cell_of(path, steps=20, limit=100)
    (member,) = cell.members([1])[:1]
    result = train_group([member], CPU)
    model = stack_models(build_models([member]), "loop")
    assert isinstance(model, BagModel)
    collection = Labels(path)._collection
    propensity = propensities(collection.counts, 400)
    block = next(iter(device_blocks([member], "test", num_batches=1, batch_size=100, device=CPU)))
    ranked: list[torch.Tensor] = []
    evaluate(model, [block], ranked=ranked)
    untrained = ranking_scores(torch.cat(ranked, 1)[0].numpy(), block.targets[0, 0].numpy(), propensity)

    assert set(untrained) < set(result.members[0].metrics)
    assert untrained == cell.task.of_ranking(torch.cat(ranked, 1)[0].numpy(), block.targets[0, 0].numpy())
    trained = result.members[0].metrics["P@1"]
    assert trained is not None
    assert untrained["P@1"] < trained


def test_a_second_test_is_marked_as_the_first_is_scored(path: str, tmp_path: Path) -> None:
    members = cell_of(path, limit=100).members([1, 2])[:2]
    model = stack_models(build_models(members), "loop").eval()
    papers = [papers_of(member, "salt")[1] for member in members]
    for member, paper in zip(members, papers, strict=True):
        hand_out({1: paper}, tmp_path, member.run_id)
    answer(model, members, tmp_path, CPU)

    for index, (member, paper) in enumerate(zip(members, papers, strict=True)):
        inputs = torch.from_numpy(paper.inputs[paper.order[: len(paper.targets)]])
        with torch.no_grad():
            best = model(inputs.expand(2, *inputs.shape))[index, :, 0].argmax(-1)
        marks = marks_of({1: paper}, tmp_path, member.run_id)
        assert marks is not None
        assert marks[1].accuracy == pytest.approx((best[:, None].numpy() == paper.targets).any(1).mean())
        assert (marks[1].num_sequences, marks[1].changed) == (100, 0)


def test_documents_of_two_collections_do_not_train_as_one_program(path: str, tmp_path: Path) -> None:
    other = str(write(tmp_path / "others", text_of(drawn(60), 400), text_of(drawn(60, seed=1), 400)))

    assert cell_of(path).program != cell_of(other).program
