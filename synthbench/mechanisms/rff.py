"""Linear attention with the Gaussian kernel, by random Fourier features."""

import math
from typing import ClassVar

import torch
from torch import nn

from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.layers import project
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism
from synthbench.options import option


@mechanism
class RFF(FeatureAttention):
    r"""Linear attention with the Gaussian kernel :math:`\exp(-\|q - k\|^2 / 2)`, estimated by random Fourier features.

    The features are :math:`\phi(x) = \sqrt{2 / M} \cos(\Omega^T x + b)`. Each head draws :math:`\Omega \sim N(0, I)`,
    and b uniform in [0, 2π).

    State: ``M * (value_dim + 1)`` numbers per head.

    Source: Rahimi & Recht (2007), algorithm 1. Features can be negative, so the denominator can come near zero or
    change sign. Near zero, only ``delta`` limits the outputs. Depending on the option ``guard``, ``delta`` is added to
    the denominator or is its smallest value.
    """

    name: ClassVar = "rff"
    label: ClassVar = "RFF"
    family: ClassVar = "linear"
    source: ClassVar = "rahimi2007random"
    complexity: ClassVar = "T M d"

    M: int = option(64, "random features per head", low=1, high=4096)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen frequencies and phases, one set per head."""
        self.directions = nn.Buffer(torch.randn(self.num_heads, self.head_dim, self.M, generator=generator))
        self.phases = nn.Buffer(2 * math.pi * torch.rand(self.num_heads, 1, self.M, generator=generator))

    def features(self, x: KeyRows, side: Side) -> FeatureRows:  # noqa: ARG002 - both sides alike
        """Compute cosines of random projections."""
        return math.sqrt(2 / self.M) * (project(x, self.directions) + self.phases).cos()
