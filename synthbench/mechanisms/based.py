"""Linear attention by the second-order Taylor expansion of the exponential."""

from typing import ClassVar

import torch

from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism


@mechanism
class Based(FeatureAttention):
    r"""The kernel :math:`1 + z + z^2 / 2`, with :math:`z = q \cdot k / \sqrt{d}`: the exponential to second order.

    Its features are :math:`[1, x d^{-1/4}, vec(x x^\top) / \sqrt{2 d}]`. The kernel is never below 1/2, so the
    denominator grows with the length.

    State: ``(1 + d + d^2) * (value_dim + 1)`` numbers a head, d the width of a head.

    Source: Arora et al. (2024), section 4.1, the linear part; their model alternates it with a sliding window (here
    ``local``) and projects queries and keys to 16 numbers a head, which is the width of a head in the suites here.
    """

    name: ClassVar = "based"
    label: ClassVar = "Based"
    family: ClassVar = "linear"
    source: ClassVar = "arora2024based"
    complexity: ClassVar = "T d^3"

    def features(self, x: KeyRows, side: Side) -> FeatureRows:  # noqa: ARG002 - both sides alike
        """Constant, linear and quadratic features side by side."""
        scaled = x / x.shape[-1] ** 0.25
        squares = (scaled.unsqueeze(-1) * scaled.unsqueeze(-2)).flatten(-2) / 2**0.5
        return torch.cat([torch.ones_like(scaled[..., :1]), scaled, squares], dim=-1)
