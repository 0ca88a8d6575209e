"""cosFormer attention."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import relu

from synthbench.errors import UsageError
from synthbench.forms.shapes import KeyRows
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism


@mechanism
class Cosformer(FeatureAttention):
    r"""Linear attention with the kernel :math:`relu(q_i) \cdot relu(k_j) \cos(\pi (i - j) / 2T)` for positions i and j.

    Here, T is ``max_length``, the largest length of a sequence. The factor :math:`\cos(\pi (i - j) / 2T)` is the inner
    product of two vectors (cos, sin), one for position i and one for position j. So the features of a token depend on
    the token and its position alone.

    State: ``2 * key_dim * (value_dim + 1)`` numbers per head.

    Source: Qin et al. (2022), the cos-based reweighting. In the paper, T is the length of the input, so early outputs
    depend on the number of later tokens. Here, T is the same for all inputs, which keeps outputs causal.
    """

    name: ClassVar = "cosformer"
    label: ClassVar = "Cosformer"
    family: ClassVar = "linear"
    source: ClassVar = "qin2022cosformer"
    complexity: ClassVar = "T d^2"

    def features(self, x: KeyRows, side: Side) -> KeyRows:  # noqa: ARG002 - both sides alike
        """Compute one nonnegative feature per channel."""
        return relu(x)

    def position_features(
        self,
        positions: Float[Tensor, " length"],
        side: Side,  # noqa: ARG002 - both sides alike
    ) -> Float[Tensor, "length 2"]:
        """Compute the cosine and sine of each position's angle: 0 at position 0, growing to π/2 at ``max_length``.

        Raises:
            UsageError: If there are more than ``max_length`` positions, since attention weights would become negative.
        """
        if len(positions) > self.max_length:
            raise UsageError(f"length is {len(positions)}; cosformer was built for max_length={self.max_length}")
        angles = positions * (math.pi / (2 * self.max_length))
        return torch.stack([angles.cos(), angles.sin()], dim=-1)
