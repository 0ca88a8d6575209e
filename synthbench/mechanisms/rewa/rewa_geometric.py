"""Geometric REWA: attention by distance in a product of three geometries."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.mechanisms.rewa._geometry import WitnessAttention, named
from synthbench.mechanisms.rewa._operators import TemperedAttention, one_a_head
from synthbench.options import option


@mechanism
class RewaGeometric(TemperedAttention, WitnessAttention, ScoreAttention):
    r"""Softmax of a negative distance, a learned combination of the distances in three geometries.

    The score of a key for a query is :math:`-(\alpha d_E^\pi + \beta d_S^\pi + \gamma d_H^\pi) / \tau`, where
    :math:`\pi` is the option ``power``.

    Each query and key is mapped, per head, to three points, called witnesses. The points lie in Euclidean space (m
    dimensions), on the sphere (n coordinates) and in the Poincaré ball (p dimensions). To compute a point, the query or
    key is first mapped linearly to x. In Euclidean space, x is the point. For the sphere, x is scaled to norm 1, and
    for the ball, it is mapped to tanh(‖x‖) x/‖x‖. The distances between witnesses are :math:`d_E`, :math:`d_S` and
    :math:`d_H`. A width (m, n or p) of 0 drops a geometry. Each head learns weights :math:`\alpha`, :math:`\beta` and
    :math:`\gamma`, which start at 1/√m, 1 and 1/√p, and a temperature :math:`\tau`, which starts at the option ``tau``.

    The position encoding rotates an even number of channels of each witness, so that distances depend on offsets
    between positions only. With ``turns=heads``, as in the packaged results of the suite ``climb`` 2026.1, the encoding
    rotates q and k instead. The maps to witnesses then mix the planes of rotation, and scores depend on absolute
    positions. In those results, this mechanism leads on copying tasks because it sees absolute positions. On the task
    ``string_copy`` with seed 1, this mechanism scores 0.82 with ``turns=heads`` but 0.11 with rotated witnesses;
    softmax attention scores 0.26.

    A curriculum can add the geometries in turn: phase 1 uses the sphere only, phase 2 adds Euclidean space, and later
    phases use all geometries.

    State: every key and value so far.

    Source: Phadke (2025), definition 4.1, algorithm 3, eq. 100 to 102. Here witnesses are computed from queries and
    keys; the paper's algorithm computes one witness per token, and uses no positions. Two formulas of the paper are
    corrected here. Equation 99 is the distance in the ball only for p = 1. The paper's tanh of every coordinate can
    give a point outside the ball. The weights start at the values of eq. 100 to 102; in appendix B.1 they start at
    softplus of these values. With power 1, as published, the spherical part has a cusp at distance 0 and does not
    reduce to softmax attention. With power 2 and twice the temperature of the softmax, the spherical part equals
    softmax attention up to terms of fourth order in the angle.
    """

    name: ClassVar = "rewa-geometric"
    label: ClassVar = "Geometric REWA"
    complexity: ClassVar = "T^2 (m + n + p + d)"

    tau: float = option(1.0, "temperature to start from", low=1e-3, high=1e3)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the maps to witnesses; start from the paper's weights and the temperature ``tau``."""
        self.draw_witnesses(generator)
        self.weights = nn.ModuleDict(
            {geometry: one_a_head(self.num_heads, start) for geometry, start in self.witnesses.starts().items()}
        )
        self.temperature = one_a_head(self.num_heads, self.tau)

    def weight(self, geometry: str) -> Tensor:
        """Compute the weight of a geometry (``euclidean``, ``spherical`` or ``hyperbolic``) in each head.

        If a curriculum adds the geometries in turn, the weight is 0 until this geometry is added.
        """
        weight: Tensor = self.weights[geometry]()
        return weight * self.witnesses.mask(geometry)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute the negative weighted distance between every query and key, divided by the temperature."""
        total = torch.zeros((), dtype=q.dtype, device=q.device)
        for geometry in self.weights:
            total = total - self.weight(geometry) / self.temperature() * self.witnesses.distance(geometry, q, k)
        return total

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Return weights, temperature and kappa per head.

        Kappa, the effective curvature, lies between -1 (spherical) and 1 (hyperbolic).
        """
        by_geometry = {geometry: self.weight(geometry)[..., 0, 0] for geometry in self.weights}
        return named(by_geometry) | super().metrics(x)
