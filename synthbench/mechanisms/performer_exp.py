"""Performer attention with positive exponential features: FAVOR+."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from synthbench.forms.feature_maps import gaussian_directions
from synthbench.forms.linear import widened
from synthbench.forms.shapes import FeatureRows, KeyRows
from synthbench.layers import project
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism
from synthbench.options import option


@mechanism
class PerformerExp(FeatureAttention):
    r"""Linear attention with an unbiased estimate of the softmax kernel by positive random features (FAVOR+).

    Each head has M frozen directions :math:`\omega`. Their features are :math:`\phi(x) = M^{-1/2} \exp(\omega^T y -
    \|y\|^2 / 2)` with :math:`y = x / d^{1/4}`, so that :math:`E\,\phi(q)\cdot\phi(k) = \exp(q \cdot k / \sqrt{d})`.

    State: ``M * (value_dim + 1)`` numbers per head.

    Source: Choromanski et al. (2021), lemma 1 and the orthogonal features that follow it. Directions are not redrawn
    during training. The features of a query are divided by their maximum. This division hardly changes the outputs,
    since it scales numerator and denominator alike. Only ``delta``, a small constant added to the denominator, is not
    scaled. The features of keys are not divided by their maximum, since a maximum over all keys would leak later keys
    to earlier outputs. The exponents of keys are at most :math:`\|\omega\|^2 / 2`, so float32 can represent the
    features for heads of up to 64 channels. For wider heads, and in float16, attention is computed in log space. If
    :math:`\|y\|` is much larger than :math:`\|\omega\|` for a key, its features underflow to 0, and the key gets no
    weight.
    """

    name: ClassVar = "performer-exp"
    label: ClassVar = "Performer (FAVOR+)"
    family: ClassVar = "linear"
    source: ClassVar = "choromanski2021performer"
    complexity: ClassVar = "T M d"

    M: int = option(64, "random features per head", low=1, high=4096)
    omega: Literal["iid", "orthogonal"] = option("orthogonal", "how the directions of a head depend on each other")

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen directions, one set per head."""
        directions = gaussian_directions(self.omega, self.num_heads, self.head_dim, self.M, generator)
        self.directions = nn.Buffer(directions)

    def features(self, x: KeyRows, side: Side) -> FeatureRows:
        """Compute exponentials of random projections."""
        y = x / x.shape[-1] ** 0.25
        exponents = project(y, self.directions) - y.square().sum(-1, keepdim=True) / 2
        if side == "query":
            exponents = exponents - exponents.amax(-1, keepdim=True)
        features: Tensor = exponents.exp() / math.sqrt(self.M)
        return features

    def key_exponents(self, k: KeyRows) -> FeatureRows:
        """Compute the logarithms of the keys' features, in float32 or better."""
        y = widened(k) / k.shape[-1] ** 0.25
        products = project(y, widened(self.directions))
        logarithms: Tensor = products - y.square().sum(-1, keepdim=True) / 2 - math.log(self.M) / 2
        return logarithms
