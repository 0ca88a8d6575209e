"""SLAY with Nyström features for the polynomial factor."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.layers import project
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.slay._base import ProductAttention, unit_anchors
from synthbench.options import option


@mechanism
class SlayNystrom(ProductAttention):
    r"""SLAY with whitened anchor features, :math:`[(u \cdot a_p)^2]_p (K + \lambda I)^{-1/2}`.

    The features are these anchor features ⊗ positive random features. Here, u is the unit vector of a query or key, and
    the P anchors :math:`a_p` are random unit vectors. The matrix K has the entries :math:`K_{pq} = (a_p \cdot a_q)^2`.
    With :math:`k(u) = [(u \cdot a_p)^2]_p`, the polynomial kernel of a query's u and a key's v is
    :math:`k(u)^T (K + \lambda I)^{-1} k(v)`. This estimate of :math:`x^2`, with x the cosine of u and v, is biased. As
    λ goes to 0, the estimate becomes exact on the anchors. It becomes exact everywhere if d (d + 1) / 2 anchors span
    all quadratic forms. Because of the whitening, kernel values and denominators can be negative or 0. The default
    ``guard=add`` does not prevent this. All heads share the anchors.

    State: ``P * R * D * (value_dim + 1)`` numbers per head.

    Source: Luna et al. (2026), appendix C, after Williams & Seeger (2000). The default of λ is from the code of Luna et
    al., which also scales by :math:`P^{-1/2}`. Table 1 of Luna et al. calls the kernel approximately unbiased.
    """

    name: ClassVar = "slay-nystrom"
    label: ClassVar = "Nyström"
    complexity: ClassVar = "T R P D d"
    dimension: ClassVar = "P"
    feature_cost: ClassVar = "d P + P^2"
    unbiased: ClassVar = False
    positive: ClassVar = False

    P: int = option(8, "anchors", low=1, high=1024)
    ridge: float = option(1e-3, "λ, added to the diagonal of the anchors' kernel", low=1e-6, high=1)

    def draw_polynomial(self, generator: torch.Generator | None) -> None:
        """Draw the frozen anchors, and compute the inverse square root of their kernel in float64."""
        anchors = unit_anchors(self.head_dim, self.P, generator)
        exact = anchors.double()
        values, vectors = torch.linalg.eigh((exact.mT @ exact).square())
        # By rounding, zero eigenvalues can be negative.
        scales = (values.clamp(min=0) + self.ridge).rsqrt()
        self.anchors = nn.Buffer(anchors)
        self.whitening = nn.Buffer(((vectors * scales) @ vectors.mT).to(anchors.dtype))

    def polynomial(self, unit: Float[Tensor, "*batch length dim"]) -> Float[Tensor, "*batch length anchors"]:
        """Compute the whitened squared cosines with the anchors."""
        return project(project(unit, self.anchors).square(), self.whitening)
