"""SLAY: the spherical Yat kernel in linear time."""

import math
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms import kernels
from synthbench.layers import project
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.slay._base import ProductAttention, unit_anchors
from synthbench.options import option


@mechanism
class Slay(ProductAttention):
    r"""Linear attention with the spherical Yat kernel, estimated by anchor features ⊗ positive random features.

    The kernel of the cosine x of a query and a key is :math:`x^2 / (C - 2x) = x^2 \int_0^\infty e^{-s (C - 2x)} ds`
    with C = 2 + epsilon. Three approximations turn the kernel into an inner product of features. R quadrature nodes
    replace the integral. D positive random features (PRF) per node replace :math:`e^{2 s x}`. P anchors :math:`a_p` on
    the sphere replace :math:`x^2`. The features are
    :math:`\phi = P^{-1/2} [(\hat u \cdot a_p)^2]_p \otimes [\sqrt{w_r}\, PRF_r(\hat u)]_r`, where :math:`\hat u` is the
    unit vector of a query or key. All heads share the anchors; random features are drawn for each head and node.

    State: ``P * R * D * (value_dim + 1)`` numbers per head.

    Source: Luna et al. (2026), eq. 10 and algorithm 1; sizes from table 9 and appendix L. Unlike in ``slay-sketch``,
    the tensor product is not sketched. The product is formed only when a sequence is processed token by token;
    otherwise, its factors are used. The paper's approximation has two systematic errors. First, as P grows, the anchors
    approximate :math:`(1 + 2x^2) / (d (d + 2))` instead of :math:`x^2`, where d is the head width. Second, R
    Gauss–Laguerre nodes cut off the kernel's peak at x = 1, near which the sum over nodes converges very slowly. In
    addition, if a single random feature estimates :math:`e^{2 s x}` at a node s, its relative variance is
    :math:`e^{4 s (1 + x)} - 1`.
    """

    name: ClassVar = "slay"
    label: ClassVar = "SLAY"
    complexity: ClassVar = "T R P D d"
    dimension: ClassVar = "P"
    feature_cost: ClassVar = "d P"
    unbiased: ClassVar = False
    positive: ClassVar = True

    P: int = option(8, "anchors", low=1, high=1024)

    def draw_polynomial(self, generator: torch.Generator | None) -> None:
        """Draw the frozen anchors, random unit vectors that all heads share."""
        self.anchors = nn.Buffer(unit_anchors(self.head_dim, self.P, generator))

    def polynomial(self, unit: Float[Tensor, "*batch length dim"]) -> Float[Tensor, "*batch length anchors"]:
        """Compute the squared cosines with the anchors, divided by the square root of P."""
        cosines = project(unit, self.anchors)
        return cosines.square() / math.sqrt(self.P)

    def own_kernel(self, dtype: torch.dtype) -> kernels.Form | None:
        """Return SLAY's GPU kernel.

        The result is None if there are too many anchors or features for the kernel, or if heads are too narrow in
        bfloat16.
        """
        if self.P > kernels.MAX_ANCHORS or self.directions.shape[-1] > kernels.MAX_FEATURES:
            return None
        if dtype == torch.bfloat16 and self.head_dim < kernels.MIN_SLAY_WIDTH_BFLOAT16:
            return None
        slay = kernels.load("_slay")
        constants = slay.Constants(self.anchors, self.directions, self.shift, self.log_scale)
        return partial(slay.attend, constants, guard=self.guard, delta=self.delta)
