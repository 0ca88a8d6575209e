"""Accuracy and loss of every member on fresh sequences."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from synthbench.runner.ensemble import SequenceModel
from synthbench.runner.stream import DeviceBlock
from synthbench.tasks import IGNORE

MAX_TOKENS = {"cpu": 1 << 10, "cuda": 1 << 20}
"""Tokens of all members that are evaluated at once: on a CPU the activations should stay in a core's cache."""


@dataclass(frozen=True)
class Score:
    """What one member reached on its sequences.

    ``accuracy`` is pooled over the scored positions of all sequences, ``loss`` is in nats a position, and
    ``std_over_sequences`` is that of the accuracies of single sequences: the noise of a smaller test set.
    """

    accuracy: float
    loss: float
    num_correct: int
    num_scored: int
    std_over_sequences: float


def member_losses(
    logits: Float[Tensor, "members batch columns classes"], targets: Int[Tensor, "members batch columns"]
) -> Float[Tensor, " members"]:
    """Mean cross-entropy of each member over its scored positions, in nats; 0 where nothing is scored."""
    losses = cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none")
    num_scored = (targets != IGNORE).flatten(1).sum(1)
    return losses.view(len(targets), -1).sum(1) / num_scored.clamp(min=1)


@torch.inference_mode()
def evaluate(model: SequenceModel, blocks: Iterable[DeviceBlock]) -> list[Score]:
    """Score every member; the sequences are read in pieces of ``MAX_TOKENS`` tokens."""
    was_training = model.training
    model.eval()
    correct, scored, losses = [], [], []
    for inputs, targets, columns in blocks:
        tokens_of_row = inputs.shape[1] * inputs.shape[-1]
        # Batches are only how the stream was drawn; for evaluation all sequences of a member are one long batch.
        sequences = inputs.transpose(0, 1).flatten(1, 2)
        labels = targets.transpose(0, 1).flatten(1, 2)
        rows = max(1, MAX_TOKENS.get(inputs.device.type, 1 << 10) // tokens_of_row)
        for piece, label in zip(torch.split(sequences, rows, dim=1), torch.split(labels, rows, dim=1), strict=True):
            logits = model(piece, columns)
            is_scored = label != IGNORE
            correct.append(((logits.argmax(-1) == label) & is_scored).sum(-1))
            scored.append(is_scored.sum(-1))
            losses.append(member_losses(logits, label) * is_scored.flatten(1).sum(1))
    model.train(was_training)
    total_loss = torch.stack(losses).double().sum(0).tolist()
    return [
        _score(*member)
        for member in zip(
            torch.cat(correct, 1).cpu().numpy(), torch.cat(scored, 1).cpu().numpy(), total_loss, strict=True
        )
    ]


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
