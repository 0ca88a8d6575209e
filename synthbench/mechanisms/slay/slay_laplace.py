"""SLAY without its polynomial factor."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.knobs import knob
from synthbench.mechanisms._feature_maps import laguerre_directions, positive_features, unit_vectors
from synthbench.mechanisms.base import FeatureAttention, Side, mechanism


@mechanism
class SlayLaplace(FeatureAttention):
    r"""Only the Laplace factor of the spherical Yat kernel: :math:`\psi_r = \sqrt{C \alpha_r / 4}\, PRF_r(\hat u)`.

    Writing :math:`x^2 / (C - 2x) = (C^2 / 4) / (C - 2x) - C / 4 - x / 2` and dropping the affine rest leaves
    :math:`(C^2 / 4) \sum_r w_r e^{2 s_r x}`, all of it positive, and not zero where the Yat kernel is.

    State: ``R * M * (value_dim + 1)`` numbers a head.

    Source: Luna et al. (2026), section 2.4, appendices C and F; the row "Laplace-only" of their tables.
    """

    name: ClassVar = "slay-laplace"
    label: ClassVar = "Laplace-only"
    family: ClassVar = "slay"
    source: ClassVar = "slay2026"
    complexity: ClassVar = "T R M d"

    R: int = knob(3, "quadrature nodes", low=1, high=64)
    M: int = knob(32, "positive random features a node", low=1, high=1024)
    epsilon: float = knob(1e-3, "added to the squared distance", low=0, high=1)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the frozen directions, one set a head and node."""
        directions, shift, weights = laguerre_directions(
            self.R,
            self.epsilon,
            num_heads=self.num_heads,
            dim=self.head_dim,
            per_node=self.M,
            generator=generator,
        )
        C = 2 + self.epsilon
        self.directions = nn.Buffer(directions)
        self.shift = nn.Buffer(shift, persistent=False)
        self.log_scale = nn.Buffer((C**2 / 4 * weights / self.M).log() / 2, persistent=False)

    def features(
        self,
        x: Float[Tensor, "*batch length key_dim"],
        side: Side,  # noqa: ARG002 - both sides alike
    ) -> Float[Tensor, "*batch length features"]:
        """Positive random features of all nodes, side by side."""
        return positive_features(unit_vectors(x), self.directions, self.shift, self.log_scale)
