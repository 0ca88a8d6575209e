"""SLAY with one random projection for both factors."""

import math
from typing import ClassVar

import torch
from torch import nn

from synthbench.forms.feature_maps import clip_exponent, unit_vectors
from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.layers import project
from synthbench.mechanisms.base import Side, mechanism
from synthbench.mechanisms.slay._base import QuadratureAttention
from synthbench.options import option


@mechanism
class SlayHadamard(QuadratureAttention):
    r"""SLAY whose features for the square and the exponential come from the same random projection.

    A feature is :math:`\psi_{r,i} = \sqrt{w_r} M^{-1} a^2 \exp(clip(\sqrt{2 s_r} a - s_r, \pm 20))` with :math:`a =
    \omega_{r,i} \cdot \hat u`, for the i-th direction of the quadrature node :math:`s_r`, whose weight is :math:`w_r`.
    Here, :math:`\hat u` is the unit vector of a query or key.

    Let x be the cosine between a query and a key. The expected kernel is not SLAY's :math:`\sum_r w_r x^2 e^{2 s_r x}`,
    since the square and the exponential contain the same random number a. Without the clipping, it is
    :math:`\sum_r (w_r / M) e^{2 s_r x} ((m^2 + 1)^2 + 4 m^2 x + 2 x^2)` with :math:`m^2 = 2 s_r (1 + x)^2`.

    State: ``R * M * (value_dim + 1)`` numbers per head.

    Source: Luna et al. (2026), section 2.4, appendices C and F; the row "Hadamard" of their tables.
    """

    name: ClassVar = "slay-hadamard"
    label: ClassVar = "Hadamard"
    complexity: ClassVar = "T R M d"
    unbiased: ClassVar = False
    positive: ClassVar = True

    M: int = option(32, "random features per node", low=1, high=1024)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen directions, one set per head and node."""
        nodes, weights = self.constants(self.M)
        self.directions = nn.Buffer(self.draw_directions(self.M, generator))
        self.tilt = nn.Buffer((2 * nodes).sqrt(), persistent=False)
        self.shift = nn.Buffer(nodes, persistent=False)
        self.log_scale = nn.Buffer(weights.log() / 2 - math.log(self.M), persistent=False)

    def features(self, x: KeyRows, side: Side) -> FeatureRows:  # noqa: ARG002 - both sides alike
        """Multiply the squares of random projections by their exponentials; concatenate the products of all nodes."""
        a = project(unit_vectors(x), self.directions)
        return a.square() * (clip_exponent(a * self.tilt - self.shift) + self.log_scale).exp()
