"""Functional REWA: witnesses in the function space of a Gaussian kernel, by random Fourier features."""

import math
from typing import ClassVar

import torch
from torch import nn

from synthbench.errors import UsageError
from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.layers import project
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism
from synthbench.options import option


@mechanism
class RewaFunctional(FeatureAttention):
    r"""Linear attention with the kernel :math:`\exp(-\|q - k\|^2 / 2\sigma^2)`, estimated by random Fourier features.

    The features are :math:`\phi(x) = \sqrt{2 / D}\, [\cos(\Omega^T x); \sin(\Omega^T x)]`. Each head has D / 2
    frequencies Ω, drawn from :math:`N(0, I / \sigma^2)` and frozen, where σ is ``bandwidth``.

    State: ``D * (value_dim + 1)`` numbers per head.

    Source: Phadke (2025), definitions 3.1 and 5.1 and algorithm 5. Algorithm 5 has the factor 1/√D instead of √(2/D),
    which would make the kernel of a token with itself 1/2. Appendix A.3 has √(2/D) with D frequencies instead of D/2,
    which would make this kernel 2. Here, as in eq. 5, the overlaps (values of the kernel) are divided by their sum, in
    linear time; algorithm 5 instead takes a softmax of overlaps. Features can be negative, so the denominator can be
    close to zero or negative.
    """

    name: ClassVar = "rewa-functional"
    label: ClassVar = "Functional REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T D d"

    D: int = option(64, "features a head, a cosine and a sine for each frequency", low=2, high=4096)
    bandwidth: float = option(1.0, "standard deviation σ of the Gaussian kernel", low=1e-3, high=1e3)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen frequencies, one set per head.

        Raises:
            UsageError: If the number of features is odd.
        """
        if self.D % 2:
            raise UsageError(f"rewa-functional:D is {self.D}; allowed: an even int")
        frequencies = torch.randn(self.num_heads, self.head_dim, self.D // 2, generator=generator)
        self.frequencies = nn.Buffer(frequencies / self.bandwidth)

    def features(self, x: KeyRows, side: Side) -> FeatureRows:  # noqa: ARG002 - both sides alike
        """Compute cosines and sines of random projections."""
        angles = project(x, self.frequencies)
        return math.sqrt(2 / self.D) * torch.cat([angles.cos(), angles.sin()], dim=-1)
