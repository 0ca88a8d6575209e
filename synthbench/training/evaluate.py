"""Accuracy and loss of every run on sequences that were not used for training."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
"""Number of bins of the confidence in a calibration error, as in Guo et al. (2017)."""


class KindLoss(NamedTuple):
    """The loss at one kind of position.

    A task may distinguish kinds of positions, such as ``repeated`` in the task ``text``.
    """

    loss: float
    """Mean loss in nats per position; NaN if no position of the kind is scored."""
    num_scored: int


@dataclass(frozen=True)
class Score:
    """The accuracy and the loss of one run on its test or validation sequences.

    ``accuracy`` is the fraction of right predictions at the scored positions of all sequences, and ``loss`` the mean
    loss per target in nats. ``std_over_sequences`` is the standard deviation of the sequences' accuracies. ``kinds``
    holds the loss at each kind of position that the task marks, if :func:`evaluate` got tasks. ``calibration_error`` is
    None except for tasks scored in bits per token.
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
    """Sum the cross-entropy of each run over its targets, in nats."""
    return _losses(logits, targets).flatten(1).sum(1)


def _losses(
    logits: Float[Tensor, "runs batch columns classes"], targets: Int[Tensor, "runs batch columns"]
) -> Float[Tensor, "runs batch columns"]:
    """Compute the cross-entropy of every target in nats; it is 0 at positions that are not scored."""
    losses = cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return losses.view(targets.shape)


@torch.no_grad()
def evaluate(
    model: SequenceModel,
    blocks: Iterable[DeviceBlock],
    *,
    predicted: list[Tensor] | None = None,
    tokens_at_once: int | None = None,
    tasks: Sequence[Task] = (),
) -> list[Score]:
    """Score every run on the given sequences, which may pass through the model in several pieces.

    Args:
        model: The model of all runs, with a leading run axis.
        blocks: The sequences with their targets.
        predicted: List to which each piece's predicted tokens are appended, [runs, sequences, scored positions] on the
            CPU; None to discard them.
        tokens_at_once: Limit on the number of tokens in a piece (see :func:`in_pieces`).
        tasks: The task of each run. If empty, scores have no calibration errors, and no separate losses for the kinds
            of positions that a task distinguishes, such as bytes after a repeated context.
    """
    was_training = model.training
    model.eval()
    correct, scored, losses, confidences = [], [], [], []
    kinds: list[dict[str, list[tuple[float, int]]]] = [{} for _ in tasks]
    for inputs, targets, columns in blocks:
        # The division into batches matters only for drawing; here all sequences of a run are one long batch.
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
    num_correct, num_scored = (torch.cat(parts, 1).cpu().numpy() for parts in (correct, scored))
    of_kinds = [_pooled(of_run) for of_run in kinds] or [{} for _ in num_correct]
    errors = calibration_errors(torch.stack(confidences).sum(0)) if confidences else [None] * len(num_correct)
    runs = zip(num_correct, num_scored, total_loss.tolist(), of_kinds, errors, strict=True)
    return [_score(*run) for run in runs]


def _by_confidence(
    logits: Float[Tensor, "runs batch columns classes"],
    is_right: Bool[Tensor, "runs batch columns"],
    is_scored: Bool[Tensor, "runs batch columns"],
) -> Float[Tensor, "runs 3 bins"]:
    """Count, in each bin of confidence, the scored predictions and the right ones, and sum the confidences."""
    confidence = (logits.amax(-1) - logits.logsumexp(-1)).exp()
    bins = (confidence * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    values = torch.stack([is_scored, is_right & is_scored, confidence * is_scored], 1).flatten(2).double()
    sums = values.new_zeros(*values.shape[:2], NUM_BINS)
    return sums.scatter_add_(2, bins.flatten(1)[:, None].expand_as(values), values)


def calibration_errors(by_confidence: Float[Tensor, "runs 3 bins"]) -> list[float]:
    """Compute each run's expected calibration error: the mean absolute difference between confidence and accuracy.

    The confidence of a prediction is the probability that the model gives to the predicted class. The mean confidence
    and the accuracy are compared in ``NUM_BINS`` bins of equal width. The absolute differences are averaged over bins;
    each bin is weighted by its number of predictions. Source: Guo et al. (2017), eq. 3.

    Args:
        by_confidence: Three values for each run and bin: number of predictions, number of right predictions, and sum of
            the confidences of all predictions.

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
    """Yield the name of each kind of position, its summed loss in nats, and the number of its scored positions."""
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
"""Validation sequences per run on which the metrics of trained layers are measured."""


@torch.no_grad()
def layer_metrics(model: SequenceModel, block: DeviceBlock) -> list[dict[str, float]]:
    """Compute the metrics that mechanisms define for their layers; return a dictionary per run.

    Keys are names like ``layer0.curvature.head2``. The metrics of a layer are computed from the inputs that it receives
    when the model reads the first batch in ``block``.
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


def _score(
    correct: Int[np.ndarray, " sequences"],
    scored: Int[np.ndarray, " sequences"],
    loss: float,
    kinds: dict[str, KindLoss],
    calibration_error: float | None,
) -> Score:
    num_correct, num_scored = int(correct.sum()), int(scored.sum())
    has_score = scored > 0
    accuracies = correct[has_score] / scored[has_score]
    return Score(
        accuracy=num_correct / max(num_scored, 1),
        loss=loss,
        num_correct=num_correct,
        num_scored=num_scored,
        std_over_sequences=float(accuracies.std()) if len(accuracies) else 0.0,
        kinds=kinds,
        calibration_error=calibration_error,
    )
