"""SLAY with the exact polynomial factor."""

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.layers import project
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.slay._base import ProductAttention
from synthbench.options import option


@mechanism
class SlayExact(ProductAttention):
    r"""SLAY with exact features for x², the squared cosine of a query and a key, in place of anchor features.

    Let u and v be the unit vectors of a query and a key. The features of u are vec(u uᵀ) ⊗ positive random features.
    The first factor is exact because :math:`\langle vec(u u^T), vec(v v^T) \rangle = (u \cdot v)^2`.

    The default ``form=symmetric`` keeps each product :math:`u_i u_j` once and multiplies it by :math:`\sqrt 2` for i <
    j. The kernel is the same, with d (d + 1) / 2 features instead of the d² of ``form=full``.

    State: ``d (d + 1) / 2 * R * D * (value_dim + 1)`` numbers per head; with ``form=full``, ``d^2`` replaces
    ``d (d + 1) / 2``.

    Source: Luna et al. (2026), section 2.4 and table 1, where the width is d².
    """

    name: ClassVar = "slay-exact"
    label: ClassVar = "Exact vec(uuᵀ)"
    complexity: ClassVar = "T R D d^3"
    dimension: ClassVar = "d (d + 1) / 2"
    feature_cost: ClassVar = "d^2"
    unbiased: ClassVar = True
    positive: ClassVar = True

    form: Literal["symmetric", "full"] = option("symmetric", "each product of two coordinates once, or in both orders")

    def draw_polynomial(self, generator: torch.Generator | None) -> None:  # noqa: ARG002 - nothing here is random
        """Create two matrices that select the first and the second coordinate of every product of two coordinates."""
        is_full = self.form == "full"
        identity = torch.eye(self.head_dim)
        offset = -self.head_dim if is_full else 0
        first, second = torch.triu_indices(self.head_dim, self.head_dim, offset)
        scale = torch.ones(len(first)) if is_full else torch.where(first < second, math.sqrt(2), 1.0)
        self.first = nn.Buffer(identity[:, first] * scale, persistent=False)
        self.second = nn.Buffer(identity[:, second], persistent=False)

    def polynomial(self, unit: Float[Tensor, "*batch length dim"]) -> Float[Tensor, "*batch length products"]:
        """Compute all products of two coordinates of each unit vector."""
        # Not by indexing, whose gradient adds up in no fixed order on a GPU.
        return project(unit, self.first) * project(unit, self.second)
