"""Base classes of SLAY and its variants, which approximate the spherical Yat kernel by a quadrature and features."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms.feature_maps import Omega, gaussian_directions, positive_features, unit_vectors
from synthbench.forms.quadrature import gauss_laguerre
from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.mechanisms.base import FeatureAttention, Side
from synthbench.options import option


@dataclass(eq=False, repr=False, kw_only=True)
class QuadratureAttention(FeatureAttention):
    r"""Linear attention with the kernel :math:`x^2 \int_0^\infty e^{-s (C - 2x)} ds`, computed by a quadrature.

    This is the spherical Yat kernel of the cosine x between a query and a key, with C = 2 + ``epsilon``. The quadrature
    replaces the kernel by :math:`x^2 \sum_r w_r e^{2 s_r x}`, with nodes :math:`s_r` and weights :math:`w_r`. Each node
    has its own set of features.
    """

    family: ClassVar = "slay"
    source: ClassVar = "slay2026"
    unbiased: ClassVar[bool]
    r"""True if the expected kernel is :math:`x^2 \sum_r w_r e^{2 s_r x}`, apart from the clipping of extreme
    exponents."""
    positive: ClassVar[bool]
    """True if kernel values are never negative, whatever the random draws."""

    # `mechanism` makes dataclasses of the classes, which ruff cannot see: an option is a field, not a shared default.
    R: int = option(3, "quadrature nodes", low=1, high=64)
    epsilon: float = option(1e-3, "added to the squared distance", low=0, high=1)
    # Only the paper's choice is left; the option stays, since it is part of the ids of stored rows.
    quadrature: Literal["gauss-laguerre"] = option("gauss-laguerre", "rule for the nodes")
    omega: Omega = option("iid", "how the directions of a head and node depend on each other")  # noqa: RUF009

    def constants(self, per_node: int) -> tuple[Tensor, Tensor]:
        """Return the nodes and weights of the quadrature, each repeated for the ``per_node`` features of its node."""
        nodes, weights = (
            constants.repeat_interleave(per_node).to(torch.get_default_dtype())
            for constants in gauss_laguerre(self.R, self.epsilon)
        )
        return nodes, weights

    def draw_directions(self, per_node: int, generator: torch.Generator | None) -> Tensor:
        """Draw the directions ω ~ N(0, I) of random features, [heads, head_dim, R * per_node], for R quadrature nodes.

        With ``omega=orthogonal``, the directions of a node are orthogonal within blocks of ``head_dim`` directions.
        """
        if self.omega == "iid":
            return torch.randn(self.num_heads, self.head_dim, self.R * per_node, generator=generator)
        directions = gaussian_directions(self.omega, self.num_heads * self.R, self.head_dim, per_node, generator)
        by_head: Tensor = directions.unflatten(0, (self.num_heads, self.R)).transpose(1, 2).flatten(2)
        return by_head

    def keep_positive_features(self, per_node: int, generator: torch.Generator | None, *, scale: float = 1.0) -> None:
        r"""Store the random directions and the constants of the features that :meth:`exponential` computes.

        For unit vectors with cosine x, the features' inner products estimate :math:`scale \sum_r w_r e^{2 s_r x}`,
        where :math:`s_r` are the nodes of a quadrature and :math:`w_r` its weights.
        """
        nodes, weights = self.constants(per_node)
        self.directions = nn.Buffer((2 * nodes).sqrt() * self.draw_directions(per_node, generator))
        self.shift = nn.Buffer(nodes, persistent=False)
        self.log_scale = nn.Buffer((scale * weights / per_node).log() / 2, persistent=False)

    def exponential(self, unit: Float[Tensor, "*batch length dim"]) -> FeatureRows:
        """Compute the positive random features of all quadrature nodes, concatenated."""
        return positive_features(unit, self.directions, self.shift, self.log_scale)


@dataclass(eq=False, repr=False, kw_only=True)
class ProductAttention(QuadratureAttention):
    r"""Linear attention with products of two feature vectors: one for :math:`x^2` and one for exponentials of x.

    Here, x is the cosine between a query and a key. Positive random features approximate the exponentials :math:`e^{2
    s_r x}`. The features are a tensor product, whose two factors are computed separately. A subclass defines the
    polynomial factor, the features for :math:`x^2`, as in one row of table 1 of the SLAY paper (Luna et al., 2026).
    """

    dimension: ClassVar[str]
    """Width of the polynomial factor, as a formula in the head's width d and the hyper-parameters."""
    feature_cost: ClassVar[str]
    """Cost of computing the polynomial factor of one vector, as a formula."""

    D: int = option(16, "positive random features per node", low=1, high=1024)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen tensors of the polynomial factor, then the frozen directions of the exponential factor."""
        self.draw_polynomial(generator)
        self.keep_positive_features(self.D, generator)

    @abstractmethod
    def draw_polynomial(self, generator: torch.Generator | None) -> None:
        """Create the frozen tensors of the polynomial factor."""

    @abstractmethod
    def polynomial(self, unit: Float[Tensor, "*batch length dim"]) -> Float[Tensor, "*batch length polynomial"]:
        """Compute the polynomial factor, the features for the squared cosine x², of unit vectors."""

    def features(self, x: KeyRows, side: Side) -> Tensor | tuple[Tensor, ...]:  # noqa: ARG002 - both sides alike
        """Compute the polynomial and the exponential factor of the features."""
        unit = unit_vectors(x)
        return self.polynomial(unit), self.exponential(unit)


def unit_anchors(dim: int, num_anchors: int, generator: torch.Generator | None) -> Float[Tensor, "dim num_anchors"]:
    """Draw anchors (random unit vectors), one per column, uniformly on the unit sphere."""
    return unit_vectors(torch.randn(num_anchors, dim, generator=generator)).mT.contiguous()
