"""SLAY with a TensorSketch for the polynomial factor."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.layers import project
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.slay._base import ProductAttention
from synthbench.mechanisms.slay._sketch import circular_convolution, count_sketch
from synthbench.options import option


@mechanism
class SlayTensorsketch(ProductAttention):
    r"""SLAY with a TensorSketch of u ⊗ u, two CountSketches convolved circularly at width P, in place of anchors.

    The features are the sketch ⊗ positive random features. Here, u is the unit vector of a query or key, and x is the
    cosine of a query and a key. The sketch is unbiased for :math:`x^2`. Kernel values and denominators can be negative
    or 0. The default ``guard=add`` does not prevent this. All heads share the sketches.

    State: ``P * R * D * (value_dim + 1)`` numbers per head.

    Source: Luna et al. (2026), section 2.4, after Pham & Pagh (2013). Table 1 of Luna et al. calls the sketch only
    approximately unbiased, but it is exactly unbiased. Their code also scales the sketch by :math:`P^{-1/2}`, which
    makes it biased.
    """

    name: ClassVar = "slay-tensorsketch"
    label: ClassVar = "TensorSketch"
    complexity: ClassVar = "T R P D d"
    dimension: ClassVar = "P"
    feature_cost: ClassVar = "d + P log P"
    unbiased: ClassVar = True
    positive: ClassVar = False

    P: int = option(8, "width of the sketch", low=1, high=1024)

    def draw_polynomial(self, generator: torch.Generator | None) -> None:
        """Draw the two frozen sketches."""
        self.first = nn.Buffer(count_sketch(self.head_dim, self.P, generator=generator))
        self.second = nn.Buffer(count_sketch(self.head_dim, self.P, generator=generator))

    def polynomial(self, unit: Float[Tensor, "*batch length dim"]) -> Float[Tensor, "*batch length sketch"]:
        """Compute the sketch of u ⊗ u for each unit vector u."""
        return circular_convolution(project(unit, self.first), project(unit, self.second))
