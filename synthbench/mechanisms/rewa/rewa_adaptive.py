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
    r"""Softmax of a negative weighted distance in three geometries; a network computes the weights from the query.

    The score of a key for query i is :math:`-(\alpha_i d_E^\pi + \beta_i d_S^\pi + \gamma_i d_H^\pi) / \tau`.

    As in ``rewa-geometric``, witnesses are points in three geometries that are computed from queries and keys, with
    Euclidean, spherical and hyperbolic distances :math:`d_E`, :math:`d_S` and :math:`d_H`. The exponent :math:`\pi` is
    ``power``. In each head, a network with one hidden layer reads the query, and a softmax turns its outputs into the
    weights :math:`\alpha_i`, :math:`\beta_i` and :math:`\gamma_i`. A width (``m``, ``n`` or ``p``) of 0 drops a
    geometry; at least two geometries must remain.

    In a curriculum that adds geometries in turn, phase 1 uses the sphere only, phase 2 adds Euclidean space, and later
    phases use all geometries. The softmax over geometries covers only the active geometries.

    State: every key and value so far.

    Source: Phadke (2025), algorithm 8. In the paper, the network reads the token; here, it reads the head's query, so
    that heads can differ. As in the paper, the weights sum to 1 and do not compensate for the widths of the geometries.
    The weighted distance is not symmetric, since its weights depend on the query.
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
        """Return, per head, the mean weights over all queries, kappa of these means, and the temperature.

        Kappa, the effective curvature, lies between -1 (spherical) and 1 (hyperbolic).
        """
        return self.gate.means(self.heads(x)[0], self.witnesses) | {"tau": self.temperature()[..., 0, 0]}
