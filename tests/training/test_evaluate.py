import numpy as np
import pytest
import torch

from synthbench.tasks import IGNORE
from synthbench.training.ensemble import stack_models
from synthbench.training.evaluate import NUM_BINS, evaluate, summed_losses
from synthbench.training.stream import device_blocks
from synthbench.training.train import build_models
from tests.training.cells import CPU, make_cell


def test_losses_are_summed_over_what_a_run_has_scored() -> None:
    logits = torch.randn(3, 3, 4, 5, dtype=torch.float64)
    targets = torch.randint(5, (3, 3, 4))
    targets[0, :, 1:] = IGNORE
    targets[2] = IGNORE

    losses = summed_losses(logits, targets)

    log_probabilities = logits.log_softmax(-1).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(losses[0], -log_probabilities[0, :, 0].sum())
    torch.testing.assert_close(losses[1], -log_probabilities[1].sum())
    assert losses[2] == 0


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


def test_evaluation_leaves_the_model_as_it_was() -> None:
    cell = make_cell("copy", "slay", length=6)
    model = stack_models(build_models(cell.runs([0, 1])), "stack")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    evaluate(model, device_blocks(cell.runs([0, 1]), "test", num_batches=1, batch_size=8, device=CPU))

    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


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
