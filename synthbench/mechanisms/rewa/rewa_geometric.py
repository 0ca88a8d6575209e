"""Geometric REWA: attention by distance in a product of three geometries."""

from typing import ClassVar

import torch
from torch import Tensor

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.mechanisms.rewa._geometry import ProductMetric, WitnessAttention, Witnesses
from synthbench.options import option


@mechanism
class RewaGeometric(WitnessAttention, ScoreAttention):
    r"""Softmax of :math:`-(\alpha d_E^\pi + \beta d_S^\pi + \gamma d_H^\pi) / \tau`, where :math:`\pi` is ``power``.

    Each query and key is mapped linearly, per head, to three points, called witnesses. They lie in Euclidean space (m
    dimensions), on the sphere (n coordinates, normalised) and in the Poincaré ball (p dimensions, by tanh(‖x‖) x/‖x‖).
    The distances between witnesses are :math:`d_E`, :math:`d_S` and :math:`d_H`. A width of 0 drops a geometry. Each
    head learns three weights, which start at 1/√m, 1 and 1/√p, and a temperature :math:`\tau`, which starts at ``tau``.

    The position encoding rotates an even number of channels of each witness, so that distances see offsets between
    positions only. With ``turns=heads``, as in the packaged rows of suite ``climb`` 2026.1, it rotates q and k instead.
    The maps to witnesses then mix the planes of rotation, and scores see absolute positions. Absolute positions explain
    the lead of this mechanism in copying. On ``string_copy`` with seed 1, it scores .82 with ``turns=heads`` but .11
    with rotated witnesses; softmax attention scores .26.

    In a geometric curriculum, phase 1 uses the sphere only, phase 2 adds Euclidean space, and later phases use all.

    State: every key and value so far.

    Source: Phadke (2025), definition 4.1, algorithm 3, eq. 100 to 102. Here witnesses are computed from queries and
    keys; the paper's algorithm computes one witness per token, and uses no positions. Two formulas are corrected:
    equation 99 is the distance in the ball only for p = 1, and tanh of every coordinate can leave the ball. The weights
    start at the values of eq. 100 to 102; in appendix B.1 they start at softplus of these values. With power 1, as
    published, the spherical part has a cusp at distance 0 and does not reduce to softmax attention. With power 2 and
    twice the temperature of the softmax, it equals softmax attention up to terms of fourth order in the angle.
    """

    name: ClassVar = "rewa-geometric"
    label: ClassVar = "Geometric REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T^2 (m + n + p + d)"

    m: int = option(5, "dimensions of Euclidean witnesses, 0 for none", low=0, high=1024)
    n: int = option(5, "coordinates of spherical witnesses, 0 for none", low=0, high=1024)
    p: int = option(5, "dimensions of hyperbolic witnesses, 0 for none", low=0, high=1024)
    power: int = option(1, "power of the distances, 1 as published", low=1, high=2)
    shared: bool = option(True, "whether queries and keys share the maps to witnesses")  # noqa: FBT003
    tau: float = option(1.0, "temperature to start from", low=1e-3, high=1e3)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the maps to witnesses."""
        self.metric = ProductMetric(self.drawn_witnesses(generator), num_heads=self.num_heads, tau=self.tau)

    def drawn_witnesses(self, generator: torch.Generator | None) -> Witnesses:
        """Draw the maps to the geometries whose width is not 0."""
        return Witnesses(
            self.name,
            num_heads=self.num_heads,
            dim=self.head_dim,
            widths=(self.m, self.n, self.p),
            power=self.power,
            shared=self.shared,
            generator=generator,
        )

    @property
    def geometric(self) -> Witnesses:
        """The linear maps to witnesses."""
        return self.metric.witnesses

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Minus the weighted distance of every pair, divided by the temperature."""
        return self.metric.scores(q, k)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - learned, whatever the inputs
        """Weights, temperature and effective curvature per head."""
        return self.metric.metrics()
