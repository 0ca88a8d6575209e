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
    r"""ReLU features reweighted by distance: :math:`relu(q_i) \cdot relu(k_j) \cos(\pi (i - j) / 2T)`.

    The cosine is the inner product of (cos, sin) at i and at j: a factor that depends on the position only.

    State: ``2 * key_dim * (value_dim + 1)`` numbers per head.

    Source: Qin et al. (2022), the cos-based reweighting. There T is the length of the input at hand, so that an early
    output depends on how long the whole input is. Here T is ``max_length``, which keeps outputs causal across lengths.
    """

    name: ClassVar = "cosformer"
    label: ClassVar = "Cosformer"
    family: ClassVar = "linear"
    source: ClassVar = "qin2022cosformer"
    complexity: ClassVar = "T d^2"

    def features(self, x: KeyRows, side: Side) -> KeyRows:  # noqa: ARG002 - both sides alike
        """One nonnegative feature a channel."""
        return relu(x)

    def position_features(
        self,
        positions: Float[Tensor, " length"],
        side: Side,  # noqa: ARG002 - both sides alike
    ) -> Float[Tensor, "length 2"]:
        """Cosine and sine of the position's angle, a quarter turn over ``max_length``.

        Raises:
            UsageError: If there are more than ``max_length`` positions, because weights would turn negative.
        """
        if len(positions) > self.max_length:
            raise UsageError(f"length is {len(positions)}; cosformer was built for max_length={self.max_length}")
        angles = positions * (math.pi / (2 * self.max_length))
        return torch.stack([angles.cos(), angles.sin()], dim=-1)
