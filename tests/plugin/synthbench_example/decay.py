"""Softmax attention that forgets."""

from typing import ClassVar

import torch
from torch import Tensor

from synthbench.mechanisms import ScoreAttention, mechanism
from synthbench.options import option


@mechanism
class Decay(ScoreAttention):
    """Softmax of inner products, less ``rate`` for every step back."""

    name: ClassVar = "decay"
    label: ClassVar = "Decay"
    family: ClassVar = "softmax"
    source: ClassVar = "unpublished"
    complexity: ClassVar = "T^2 d"

    rate: float = option(0.1, "taken off a score for every step between query and key", low=0, high=10)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """Score the queries, which are the last ones where there are fewer, against the keys."""
        keys = torch.arange(k.shape[-2], dtype=q.dtype, device=q.device)
        age = keys[-q.shape[-2] :, None] - keys
        scores: Tensor = q @ k.mT / q.shape[-1] ** 0.5 - self.rate * age
        return scores
