"""SLAY with a sketched tensor product."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.shapes import KeyHeads
from synthbench.layers import project
from synthbench.mechanisms.base import Side, mechanism
from synthbench.mechanisms.slay._base import QuadratureAttention, unit_anchors
from synthbench.mechanisms.slay._sketch import circular_convolution, count_sketch
from synthbench.options import option


@mechanism
class SlaySketch(QuadratureAttention):
    r"""SLAY with a CountSketch of its tensor product: :math:`[\sqrt{w_r}\, S_r(\phi_{anchors} \otimes PRF_r)]_r`.

    The sketch :math:`S_r` maps the P D entries of one node's tensor product to S numbers. The product is not formed:
    both factors are sketched, and the two sketches are convolved circularly. Every head and node has its own sketch;
    all heads share the anchors. The expected kernel equals the expected kernel of ``slay``, including the bias of the
    anchors. Because of the sketch, kernel values and denominators can be negative. The default ``guard=add`` does not
    prevent this.

    State: ``R * S * (value_dim + 1)`` numbers per head.

    Source: Luna et al. (2026), eq. 10 and algorithm 1. The authors' code leaves out the sketch (line 5 of the
    algorithm). The convolution follows Pham & Pagh (2013). The paper does not give S. The default here is 64, half of
    the default P D = 128.
    """

    name: ClassVar = "slay-sketch"
    label: ClassVar = "SLAY (sketched)"
    complexity: ClassVar = "T R S (P + D + d)"
    unbiased: ClassVar = False
    positive: ClassVar = False

    P: int = option(8, "anchors", low=1, high=1024)
    D: int = option(16, "positive random features per node", low=1, high=1024)
    S: int = option(64, "width of a node's sketch", low=1, high=4096)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw anchors and directions as ``slay`` does, then the sketches."""
        self.anchors = nn.Buffer(unit_anchors(self.head_dim, self.P, generator))
        self.keep_positive_features(self.D, generator)
        shape = (self.num_heads, self.R)
        polynomial = count_sketch(*shape, self.P, self.S, generator=generator)
        # Three axes each, [heads, P, R S] and [heads R, D, S]: stacked runs cannot be aligned with more.
        self.polynomial_sketch = nn.Buffer(polynomial.transpose(1, 2).flatten(2))
        self.exponential_sketch = nn.Buffer(count_sketch(*shape, self.D, self.S, generator=generator).flatten(0, 1))

    def features(self, x: KeyHeads, side: Side) -> Float[Tensor, "*batch heads length features"]:  # noqa: ARG002 - both sides alike
        """Compute the sketches of the tensor products of all quadrature nodes, concatenated."""
        unit = unit_vectors(x)
        polynomial = project(unit, self.anchors).square() / math.sqrt(self.P)
        first = project(polynomial, self.polynomial_sketch).unflatten(-1, (self.R, self.S))
        by_node = self.exponential(unit).unflatten(-1, (self.R, self.D)).transpose(-2, -3).flatten(-4, -3)
        second = project(by_node, self.exponential_sketch).unflatten(-3, (self.num_heads, self.R)).transpose(-2, -3)
        return circular_convolution(first, second).flatten(-2)
