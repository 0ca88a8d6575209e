"""Performer attention with ReLU features."""

import math
from typing import ClassVar

import torch
from torch import nn
from torch.nn.functional import relu

from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.layers import project
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism
from synthbench.options import option


@mechanism
class Performer(FeatureAttention):
    r"""Linear attention with features :math:`\phi(x) = relu(x W)`, with a random, frozen matrix W for each head.

    The entries of W are drawn from N(0, 1/d). The expected kernel is the arc-cosine kernel of order 1;
    ``performer-exp`` estimates the softmax kernel instead.

    State: ``M * (value_dim + 1)`` numbers per head.

    Source: Choromanski et al. (2021), generalised attention with ReLU. As in the code behind the tables of Luna et al.
    (2026), the columns of W are neither orthogonal nor redrawn during training, and no constant is added to the
    features.
    """

    name: ClassVar = "performer"
    label: ClassVar = "Performer"
    family: ClassVar = "linear"
    source: ClassVar = "choromanski2021performer"
    complexity: ClassVar = "T M d"

    M: int = option(64, "random features per head", low=1, high=4096)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen directions, one set per head."""
        directions = torch.randn(self.num_heads, self.head_dim, self.M, generator=generator)
        self.directions = nn.Buffer(directions / math.sqrt(self.head_dim))

    def features(self, x: KeyRows, side: Side) -> FeatureRows:  # noqa: ARG002 - both sides alike
        """Compute rectified random projections."""
        return relu(project(x, self.directions))
