"""SLAY: the spherical Yat kernel in linear time."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.knobs import knob
from synthbench.layers import project
from synthbench.mechanisms._feature_maps import gaussian, laguerre_directions, positive_features, unit_vectors
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism


@mechanism
class Slay(FeatureAttention):
    r"""Spherical Yat attention by anchor features ⊗ positive random features.

    :math:`x^2 / (C - 2x) = x^2 \int_0^\infty e^{-s (C - 2x)} ds` with C = 2 + epsilon. R Gauss–Laguerre nodes
    replace the integral, D positive random features a node its exponential :math:`e^{2 s x}`, and P anchors on the
    sphere :math:`x^2`: :math:`\phi = P^{-1/2} [(\hat u \cdot a_p)^2]_p \otimes [\sqrt{w_r}\, PRF_r(\hat u)]_r`. Anchors
    are shared by the heads, random features are drawn per head and node.

    State: ``P * R * D * (value_dim + 1)`` numbers a head.

    Source: Luna et al. (2026), eq. 10 and algorithm 1; sizes from table 9 and appendix L. The tensor product is
    neither sketched nor formed. Two errors of the approximation are the paper's own: the anchors tend to
    :math:`(1 + 2x^2) / (d (d + 2))`, and R nodes cut the peak at x = 1, where quadrature does not converge uniformly.
    """

    name: ClassVar = "slay"
    label: ClassVar = "SLAY"
    family: ClassVar = "slay"
    source: ClassVar = "slay2026"
    complexity: ClassVar = "T R P D d"

    R: int = knob(3, "quadrature nodes", low=1, high=64)
    P: int = knob(8, "anchors", low=1, high=1024)
    D: int = knob(16, "positive random features a node", low=1, high=1024)
    epsilon: float = knob(1e-3, "added to the squared distance", low=0, high=1)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen anchors, then the directions, one set a head and node."""
        anchors = unit_vectors(gaussian(self.P, self.head_dim, generator=generator)).mT
        directions, shift, weights = laguerre_directions(
            self.R,
            self.epsilon,
            num_heads=self.num_heads,
            dim=self.head_dim,
            per_node=self.D,
            generator=generator,
        )
        self.anchors = nn.Buffer(anchors.contiguous())
        self.directions = nn.Buffer(directions)
        self.shift = nn.Buffer(shift, persistent=False)
        self.log_scale = nn.Buffer((weights / self.D).log() / 2, persistent=False)

    def features(
        self,
        x: Float[Tensor, "*batch length key_dim"],
        side: Side,  # noqa: ARG002 - both sides alike
    ) -> tuple[Float[Tensor, "*batch length anchors"], Float[Tensor, "*batch length positive"]]:
        """The anchors' factor and the exponential's factor."""
        unit = unit_vectors(x)
        polynomial = project(unit, self.anchors).square() / self.P**0.5
        return polynomial, positive_features(unit, self.directions, self.shift, self.log_scale)
