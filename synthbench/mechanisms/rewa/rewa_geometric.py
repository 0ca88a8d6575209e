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

    A query or key has three witnesses, with one linear map a head and geometry. They lie in Euclidean space (m
    dimensions, linear), on the sphere (n coordinates, normalised) and in the Poincaré ball (p dimensions, tanh(‖x‖)
    x/‖x‖). A width of 0 drops a geometry. The weights and the temperature are learned, one per head, from 1/√m, 1, 1/√p
    and ``tau``.

    Positions turn the witnesses of each geometry, an even number of their channels, so that distances see offsets only.
    With ``turns=heads``, as in the rows of ``climb`` 2026.1, they turn q and k; the maps behind mix their planes, and
    scores see absolute places. These made its lead in copying: with seed 1 it scores .82 on ``string_copy`` in that
    way and .11 with witnesses turned, where softmax attention has .26.

    The curriculum lets the sphere act in phase 1, Euclidean space too in phase 2, all after that.

    State: every key and value so far.

    Source: Phadke (2025), definition 4.1, algorithm 3, eq. 100 to 102. Witnesses are of queries and keys, of which the
    paper's algorithm has one per token; it has no positions. Corrected: the distance in the ball, since equation 99 is
    not one beyond p = 1, and the map into it, since tanh of every coordinate leaves it. The weights start otherwise;
    appendix B.1 begins at softplus of them. As published, power 1, the spherical part has a cusp at distance 0 and does
    not reduce to softmax attention. Power 2 does for small angles, up to the fourth order of the angle, at twice the
    temperature.
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
        """Maps to the geometries that the options leave."""
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
        """The maps to witnesses."""
        return self.metric.witnesses

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Minus the distance of every pair over the temperature."""
        return self.metric.scores(q, k)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - learned, whatever the inputs
        """Weights, temperature and effective curvature a head."""
        return self.metric.metrics()
