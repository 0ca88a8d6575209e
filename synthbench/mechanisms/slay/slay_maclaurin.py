"""SLAY with random Maclaurin features for the polynomial factor."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.layers import project
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.slay._base import ProductAttention
from synthbench.options import option


@mechanism
class SlayMaclaurin(ProductAttention):
    r"""SLAY with products of random projections, :math:`P^{-1/2} [(r_i \cdot u)(t_i \cdot u)]_i`, in place of anchors.

    The features are these products ⊗ positive random features. Here, u is the unit vector of a query or key, and x is
    the cosine of a query and a key. The entries of r and t are random signs, so that the expected kernel of the
    products is :math:`x^2`. Kernel values and denominators can be negative or 0. The default ``guard=add`` does not
    prevent this. All heads share the projections.

    State: ``P * R * D * (value_dim + 1)`` numbers per head.

    Source: Luna et al. (2026), appendix C, after Kar & Karnick (2012). The code of Luna et al. draws r and t from
    N(0, I / d), so that the expected kernel is :math:`x^2 / d^2`.
    """

    name: ClassVar = "slay-maclaurin"
    label: ClassVar = "Random Maclaurin"
    complexity: ClassVar = "T R P D d"
    dimension: ClassVar = "P"
    feature_cost: ClassVar = "d P"
    unbiased: ClassVar = True
    positive: ClassVar = False

    P: int = option(8, "products of two projections", low=1, high=1024)

    def draw_polynomial(self, generator: torch.Generator | None) -> None:
        """Draw the frozen random signs r and t."""
        signs = 2 * torch.randint(2, (2, self.head_dim, self.P), generator=generator) - 1
        first, second = signs.to(torch.get_default_dtype())
        self.first = nn.Buffer(first / math.sqrt(self.P))
        self.second = nn.Buffer(second)

    def polynomial(self, unit: Float[Tensor, "*batch length dim"]) -> Float[Tensor, "*batch length products"]:
        """Compute the P products of two random projections of each unit vector."""
        return project(unit, self.first) * project(unit, self.second)
