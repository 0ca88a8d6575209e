"""SLAY without its polynomial factor."""

from typing import ClassVar

import torch

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.mechanisms.base import Side, mechanism
from synthbench.mechanisms.slay._base import QuadratureAttention
from synthbench.options import option


@mechanism
class SlayLaplace(QuadratureAttention):
    r"""SLAY with only the factor 1 / (C - 2x) of its kernel: features :math:`\sqrt{C \alpha_r / 4}\, PRF_r(\hat u)`.

    The spherical Yat kernel is :math:`x^2 / (C - 2x) = (C^2 / 4) / (C - 2x) - C / 4 - x / 2`. Here, x is the cosine of
    a query and a key, :math:`\hat u` is the unit vector of a query or key, and C = 2 + epsilon. Without the terms C / 4
    and x / 2, a quadrature with nodes :math:`s_r` gives :math:`(C^2 / 4) \sum_r w_r e^{2 s_r x}`, with
    :math:`w_r = \alpha_r / C` for the Gauss–Laguerre weights :math:`\alpha_r`. Positive random features :math:`PRF_r`
    estimate the exponentials. This kernel is always positive, even at x = 0, where the Yat kernel is 0.

    State: ``R * M * (value_dim + 1)`` numbers per head.

    Source: Luna et al. (2026), section 2.4, appendices C and F; the row "Laplace-only" of their tables.
    """

    name: ClassVar = "slay-laplace"
    label: ClassVar = "Laplace-only"
    complexity: ClassVar = "T R M d"
    unbiased: ClassVar = False
    positive: ClassVar = True

    M: int = option(32, "positive random features per node", low=1, high=1024)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen directions, one set per head and node."""
        C = 2 + self.epsilon
        self.keep_positive_features(self.M, generator, scale=C**2 / 4)

    def features(self, x: KeyRows, side: Side) -> FeatureRows:  # noqa: ARG002 - both sides alike
        """Compute the positive random features of all quadrature nodes, concatenated."""
        return self.exponential(unit_vectors(x))
