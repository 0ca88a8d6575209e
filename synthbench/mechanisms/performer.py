"""Performer attention with ReLU features."""

import math
from typing import ClassVar

import torch
from torch import nn
from torch.nn.functional import relu

from synthbench.forms.feature_maps import gaussian
from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.layers import project
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism
from synthbench.options import option


@mechanism
class Performer(FeatureAttention):
    r"""Random ReLU features, :math:`\phi(x) = relu(x W)`, the entries of W drawn from N(0, 1/d) and frozen, per head.

    The kernel expected is the arc-cosine kernel of order 1, not the softmax kernel: see ``performer-exp`` for that one.

    State: ``M * (value_dim + 1)`` numbers per head.

    Source: Choromanski et al. (2021), generalised attention with ReLU. No orthogonal blocks, no redraw, no constant
    added to the features, as in the code behind the SLAY paper's tables.
    """

    name: ClassVar = "performer"
    label: ClassVar = "Performer"
    family: ClassVar = "linear"
    source: ClassVar = "choromanski2021performer"
    complexity: ClassVar = "T M d"

    M: int = option(64, "random features a head", low=1, high=4096)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen directions, one set a head."""
        directions = gaussian(self.num_heads, self.head_dim, self.M, generator=generator)
        self.directions = nn.Buffer(directions / math.sqrt(self.head_dim))

    def features(self, x: KeyRows, side: Side) -> FeatureRows:  # noqa: ARG002 - both sides alike
        """Rectified random projections."""
        return relu(project(x, self.directions))
