"""Accuracy and loss of every member on fresh sequences."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from synthbench.tasks import IGNORE
from synthbench.training.ensemble import SequenceModel
from synthbench.training.stream import DeviceBlock, in_pieces


@dataclass(frozen=True)
class Score:
    """The score of one member on its sequences.

    ``accuracy`` is pooled over the scored positions of all sequences, ``loss`` is in nats a position, and
    ``std_over_sequences`` is that of the accuracies of single sequences: the noise of a smaller test set.
    """

    accuracy: float
    loss: float
    num_correct: int
    num_scored: int
    std_over_sequences: float


def summed_losses(
    logits: Float[Tensor, "members batch columns classes"], targets: Int[Tensor, "members batch columns"]
) -> Float[Tensor, " members"]:
    """Cross-entropy of each member summed over its scored positions, in nats."""
    losses = cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return losses.view(len(targets), -1).sum(1)


@torch.inference_mode()
def evaluate(
    model: SequenceModel,
    blocks: Iterable[DeviceBlock],
    *,
    predicted: list[Tensor] | None = None,
    tokens_at_once: int | None = None,
) -> list[Score]:
    """Score every member; the sequences are read in pieces.

    Args:
        model: Of all members.
        blocks: The sequences.
        predicted: Takes the predicted tokens of every piece, [members, sequences, columns] on the CPU.
        tokens_at_once: Size of a piece, see :func:`in_pieces`.
    """
    was_training = model.training
    model.eval()
    correct, scored, losses = [], [], []
    for inputs, targets, columns in blocks:
        # Batches are only how the stream was drawn; for evaluation all sequences of a member are one long batch.
        sequences = inputs.transpose(0, 1).flatten(1, 2)
        labels = targets.transpose(0, 1).flatten(1, 2)
        for piece, label in in_pieces(sequences, labels, tokens_at_once):
            logits = model(piece, columns)
            is_scored = label != IGNORE
            tokens = logits.argmax(-1)
            correct.append(((tokens == label) & is_scored).sum(-1))
            scored.append(is_scored.sum(-1))
            losses.append(summed_losses(logits, label))
            if predicted is not None:
                predicted.append(tokens.cpu())
    model.train(was_training)
    total_loss = torch.stack(losses).double().sum(0).tolist()
    return [
        _score(*member)
        for member in zip(
            torch.cat(correct, 1).cpu().numpy(), torch.cat(scored, 1).cpu().numpy(), total_loss, strict=True
        )
    ]


METRIC_SEQUENCES = 16
"""Validation sequences of a member that metrics of what a layer learned are taken from."""


@torch.inference_mode()
def layer_metrics(model: SequenceModel, block: DeviceBlock) -> list[dict[str, float]]:
    """The metrics of the mechanisms, a dictionary a member: ``layer0.curvature.head2``.

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
    members: list[dict[str, float]] = [{} for _ in range(block.inputs.shape[1])]
    for index, layer in enumerate(model.layers):
        for name, values in layer.mixer.metrics(seen[index]).items():
            for member, head_values in zip(members, values.reshape(len(members), -1).tolist(), strict=True):
                member |= {f"layer{index}.{name}.head{head}": value for head, value in enumerate(head_values)}
    return members


def _score(correct: Int[np.ndarray, " sequences"], scored: Int[np.ndarray, " sequences"], total_loss: float) -> Score:
    num_correct, num_scored = int(correct.sum()), int(scored.sum())
    has_score = scored > 0
    accuracies = correct[has_score] / scored[has_score]
    return Score(
        accuracy=num_correct / max(num_scored, 1),
        loss=float(total_loss) / max(num_scored, 1),
        num_correct=num_correct,
        num_scored=num_scored,
        std_over_sequences=float(accuracies.std()) if len(accuracies) else 0.0,
    )
