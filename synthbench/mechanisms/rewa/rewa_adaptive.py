"""Adaptive REWA: the weights of the geometries depend on the query."""

from typing import ClassVar

import torch
from torch import Tensor

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa._geometry import Gate
from synthbench.mechanisms.rewa._operators import one_a_head
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.options import option


@mechanism
class RewaAdaptive(RewaGeometric):
    r"""Softmax of a negative sum of distances in three geometries, weighted by a network that reads the query.

    The score of a key for query i is :math:`-(\alpha_i d_E^\pi + \beta_i d_S^\pi + \gamma_i d_H^\pi) / \tau`.

    As in ``rewa-geometric``, each query and key is mapped to one point in each geometry: m Euclidean, n spherical and p
    hyperbolic coordinates. The distances between the points of query and key are :math:`d_E`, :math:`d_S` and
    :math:`d_H`. The exponent :math:`\pi` is ``power``. In each head, a network with one hidden layer reads the query,
    and a softmax turns its outputs into the weights :math:`\alpha_i`, :math:`\beta_i` and :math:`\gamma_i`. Each head
    learns the temperature :math:`\tau`. If the option ``m``, ``n`` or ``p`` is 0, its geometry is dropped; at least two
    geometries must remain.

    A curriculum can add the geometries in turn: phase 1 uses the sphere only, phase 2 adds Euclidean space, and later
    phases use all geometries. A geometry that is not yet added has the weight 0.

    State: every key and value so far.

    Source: Phadke (2025), algorithm 8. In the paper, the network reads the token; here, it reads the head's query, so
    that heads can differ. As in the paper, the weights sum to 1 and do not compensate for different numbers of
    coordinates.
    """

    name: ClassVar = "rewa-adaptive"
    label: ClassVar = "Adaptive REWA"
    complexity: ClassVar = "T^2 (m + n + p + d)"

    hidden: int = option(16, "hidden units of the network that weighs the geometries", low=1, high=1024)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the maps to witnesses, then the network."""
        self.draw_witnesses(generator)
        self.gate = Gate(self, self.hidden, generator)
        self.temperature = one_a_head(self.num_heads, self.tau)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute negative distances, weighted by the query's weights, and divide them by the temperature."""
        total = torch.zeros((), dtype=q.dtype, device=q.device)
        for geometry, share in self.gate(q, self.witnesses).items():
            total = total - share / self.temperature() * self.witnesses.distance(geometry, q, k)
        return total

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Return ``alpha``, ``beta``, ``gamma``, ``kappa`` and ``tau``, each with one value per head.

        The first three are the weights of Euclidean, spherical and hyperbolic distances, averaged over all queries.
        Kappa, the effective curvature, is computed from these means and lies between -1 (spherical) and 1 (hyperbolic).
        Tau is the temperature.
        """
        return self.gate.means(self.heads(x)[0], self.witnesses) | {"tau": self.temperature()[..., 0, 0]}
