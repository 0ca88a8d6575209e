"""Accuracy and loss of every run on fresh sequences."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from synthbench.tasks import IGNORE, Task
from synthbench.training.ensemble import SequenceModel
from synthbench.training.stream import DeviceBlock, in_pieces

NUM_BINS = 15
"""Of the confidence, in a calibration error: the number of Guo et al. (2017)."""


class KindLoss(NamedTuple):
    """The loss at the positions of one kind."""

    loss: float
    """In nats a position; NaN without one."""
    num_scored: int


@dataclass(frozen=True)
class Score:
    """The score of one run on its sequences.

    ``accuracy`` is pooled over the scored positions of all sequences, ``loss`` is in nats a target.
    ``std_over_sequences`` is that of the accuracies of single sequences: the noise of a smaller test set. ``kinds`` has
    the losses at the kinds of positions that a task tells apart, where they were asked for. ``calibration_error`` is
    for tasks in bits.
    """

    accuracy: float
    loss: float
    num_correct: int
    num_scored: int
    std_over_sequences: float
    kinds: dict[str, KindLoss] = field(default_factory=dict)
    calibration_error: float | None = None


def summed_losses(
    logits: Float[Tensor, "runs batch columns classes"], targets: Int[Tensor, "runs batch columns"]
) -> Float[Tensor, " runs"]:
    """Cross-entropy of each run summed over its targets, in nats."""
    return _losses(logits, targets).flatten(1).sum(1)


def _losses(
    logits: Float[Tensor, "runs batch columns classes"], targets: Int[Tensor, "runs batch columns"]
) -> Float[Tensor, "runs batch columns"]:
    """Cross-entropy of every target in nats, 0 where nothing is scored."""
    losses = cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return losses.view(targets.shape)


@torch.inference_mode()
def evaluate(
    model: SequenceModel,
    blocks: Iterable[DeviceBlock],
    *,
    predicted: list[Tensor] | None = None,
    tokens_at_once: int | None = None,
    tasks: Sequence[Task] = (),
) -> list[Score]:
    """Score every run; the sequences are read in pieces.

    Args:
        model: Of all runs.
        blocks: The sequences.
        predicted: Takes the predicted tokens of every piece, [runs, sequences, columns] on the CPU.
        tokens_at_once: Size of a piece, see :func:`in_pieces`.
        tasks: Those of the runs, which tell kinds of positions apart and whether to measure calibration; without
            them no score has either.
    """
    was_training = model.training
    model.eval()
    correct, scored, losses, confidences = [], [], [], []
    kinds: list[dict[str, list[tuple[float, int]]]] = [{} for _ in tasks]
    for inputs, targets, columns in blocks:
        # Batches are only how the stream was drawn; for evaluation all sequences of a run are one long batch.
        sequences = inputs.transpose(0, 1).flatten(1, 2)
        labels = targets.transpose(0, 1).flatten(1, 2)
        for piece, label in in_pieces(sequences, labels, tokens_at_once):
            logits = model(piece, columns)
            is_scored = label != IGNORE
            tokens = logits.argmax(-1)
            correct.append(((tokens == label) & is_scored).sum(-1))
            scored.append(is_scored.sum(-1))
            losses_there = _losses(logits, label)
            losses.append(losses_there.flatten(1).sum(1))
            if tasks and tasks[0].measure == "bits":
                confidences.append(_by_confidence(logits, tokens == label, is_scored))
            for run, task in enumerate(tasks):
                for name, loss in _by_kind(task, piece[run], is_scored[run], losses_there[run], columns):
                    kinds[run].setdefault(name, []).append(loss)
            if predicted is not None:
                predicted.append(tokens.cpu())
    model.train(was_training)
    total_loss = torch.stack(losses).double().sum(0) / torch.cat(scored, 1).sum(1).clamp(min=1)
    scores = [
        _score(*run)
        for run in zip(
            torch.cat(correct, 1).cpu().numpy(), torch.cat(scored, 1).cpu().numpy(), total_loss.tolist(), strict=True
        )
    ]
    if not tasks:
        return scores
    errors = calibration_errors(torch.stack(confidences).sum(0)) if confidences else [None] * len(scores)
    return [
        replace(score, kinds=_pooled(of_run), calibration_error=error)
        for score, of_run, error in zip(scores, kinds, errors, strict=True)
    ]


def _by_confidence(
    logits: Float[Tensor, "runs batch columns classes"],
    is_right: Bool[Tensor, "runs batch columns"],
    is_scored: Bool[Tensor, "runs batch columns"],
) -> Float[Tensor, "runs 3 bins"]:
    """Number, number of right ones, and summed confidence of the scored predictions, by bins of the confidence."""
    confidence = (logits.amax(-1) - logits.logsumexp(-1)).exp()
    bins = (confidence * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    values = torch.stack([is_scored, is_right & is_scored, confidence * is_scored], 1).flatten(2).double()
    sums = values.new_zeros(*values.shape[:2], NUM_BINS)
    return sums.scatter_add_(2, bins.flatten(1)[:, None].expand_as(values), values)


def calibration_errors(by_confidence: Float[Tensor, "runs 3 bins"]) -> list[float]:
    """Compute the mean distance between confidence and the share that is right, over predictions.

    The confidence of a prediction is the probability of the class that it takes for the most probable. Predictions
    are compared in ``NUM_BINS`` bins of equal width. Source: Guo et al. (2017), eq. 3.

    Args:
        by_confidence: Numbers of predictions, numbers of right ones and sums of confidences in each bin.

    >>> calibration_errors(torch.tensor([[[8.0, 8.0], [2.0, 7.0], [3.0, 6.0]]]))
    [0.125]
    """
    number, right, confidence = by_confidence.unbind(1)
    return ((right - confidence).abs().sum(-1) / number.sum(-1).clamp(min=1)).tolist()


def _by_kind(
    task: Task,
    inputs: Int[Tensor, "batch length"],
    is_scored: Bool[Tensor, "batch columns"],
    losses: Float[Tensor, "batch columns"],
    columns: Int[Tensor, " columns"],
) -> Iterator[tuple[str, tuple[float, int]]]:
    """Summed loss and number of the scored positions of each kind."""
    for name, mask in task.kinds(inputs.cpu().numpy()).items():
        is_kind = torch.from_numpy(mask).to(losses.device)[:, columns] & is_scored
        yield name, (float(losses[is_kind].double().sum()), int(is_kind.sum()))


def _pooled(kinds: Mapping[str, Sequence[tuple[float, int]]]) -> dict[str, KindLoss]:
    pooled = {}
    for name, parts in kinds.items():
        loss, num_scored = map(sum, zip(*parts, strict=True))
        pooled[name] = KindLoss(loss / num_scored if num_scored else math.nan, int(num_scored))
    return pooled


METRIC_SEQUENCES = 16
"""Validation sequences of a run that metrics of what a layer learned are taken from."""


@torch.inference_mode()
def layer_metrics(model: SequenceModel, block: DeviceBlock) -> list[dict[str, float]]:
    """The metrics of the mechanisms, a dictionary a run: ``layer0.curvature.head2``.

    The inputs of a layer are those that some sequences give.
    """
    seen: dict[int, Tensor] = {}
    hooks = [
        layer.mixer.register_forward_pre_hook(lambda _mixer, inputs, index=index: seen.update({index: inputs[0]}))
        for index, layer in enumerate(model.layers)
    ]
    try:
        model(block.inputs[0])
    finally:
        for hook in hooks:
            hook.remove()
    runs: list[dict[str, float]] = [{} for _ in range(block.inputs.shape[1])]
    for index, layer in enumerate(model.layers):
        for name, values in layer.mixer.metrics(seen[index]).items():
            for run, head_values in zip(runs, values.reshape(len(runs), -1).tolist(), strict=True):
                run |= {f"layer{index}.{name}.head{head}": value for head, value in enumerate(head_values)}
    return runs


def _score(correct: Int[np.ndarray, " sequences"], scored: Int[np.ndarray, " sequences"], loss: float) -> Score:
    num_correct, num_scored = int(correct.sum()), int(scored.sum())
    has_score = scored > 0
    accuracies = correct[has_score] / scored[has_score]
    return Score(
        accuracy=num_correct / max(num_scored, 1),
        loss=loss,
        num_correct=num_correct,
        num_scored=num_scored,
        std_over_sequences=float(accuracies.std()) if len(accuracies) else 0.0,
    )
