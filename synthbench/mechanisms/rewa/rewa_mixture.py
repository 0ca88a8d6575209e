"""Mixture-of-geometries REWA: one attention per geometry, mixed by a gate."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from synthbench.forms import scores
from synthbench.forms.shapes import AnswerHeads, KeyHeads, Keys, PairScores, Queries, QueryHeads, ValueHeads
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa._geometry import Gate, WitnessAttention
from synthbench.mechanisms.rewa._operators import one_a_head
from synthbench.options import option


@mechanism
class RewaMixture(WitnessAttention):
    r"""A mixture of attentions, each by distance in one geometry, with weights that a gate computes from the query.

    The output at query i is :math:`\sum_g G(q_i)_g \sum_j \mathrm{softmax}_j(-d_g^\pi(i, j) / \tau_g) v_j`.

    The three attentions g, called experts, are Euclidean, spherical and hyperbolic. As in ``rewa-geometric``, each
    query and key is mapped to one point in each geometry: m Euclidean, n spherical and p hyperbolic coordinates. The
    points are rotated by position; :math:`d_g` is the distance between the points of a query and a key. The exponent
    :math:`\pi` is ``power``. The gate G of a head is a network with one hidden layer that reads the query, followed by
    a softmax. Each expert learns one temperature :math:`\tau_g` per head, which starts at √m ``tau`` (Euclidean),
    ``tau`` (spherical) or √p ``tau`` (hyperbolic). If the option ``m``, ``n`` or ``p`` is 0, its expert is dropped; at
    least two experts must remain.

    A curriculum can add the geometries in turn: phase 1 uses the sphere only, phase 2 adds Euclidean space, and later
    phases use all geometries. An expert whose geometry is not yet added has the weight 0.

    State: every key and value so far.

    Source: Phadke (2025), definition 10.4. In the paper, the gate reads the token; here, it reads the head's query. All
    experts use the same values. The operator-valued expert of the paper's example is a separate mechanism,
    ``rewa-operator``.
    """

    name: ClassVar = "rewa-mixture"
    label: ClassVar = "Mixture REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T^2 (m + n + p + 3 d)"
    takes_last_queries: ClassVar = True

    tau: float = option(1.0, "temperature of the spherical expert to start from", low=1e-3, high=1e3)
    hidden: int = option(16, "hidden units of the gate's network", low=1, high=1024)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the maps to witnesses, then the gate."""
        self.draw_witnesses(generator)
        self.gate = Gate(self, self.hidden, generator)
        starts = self.witnesses.starts().items()
        self.temperatures = nn.ModuleDict(
            {geometry: one_a_head(self.num_heads, self.tau / start) for geometry, start in starts}
        )

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend in every geometry and mix the results."""
        total = torch.zeros((), dtype=v.dtype, device=v.device)
        for geometry, share in self.gate(q, self.witnesses).items():
            total = total + share * scores.attend(partial(self.expert_scores, geometry), "softmax", q, k, v)
        return total

    def expert_scores(self, geometry: str, q: Queries, k: Keys) -> PairScores:
        """Compute the negative distance of each query and key in one geometry, divided by the expert's temperature."""
        temperature: Tensor = self.temperatures[geometry]()
        return -self.witnesses.distance(geometry, q, k) / temperature

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Return ``alpha``, ``beta``, ``gamma`` and ``kappa``, each with one value per head.

        The first three are the weights of the Euclidean, spherical and hyperbolic experts, averaged over all queries.
        Kappa, the effective curvature, is computed from these means and lies between -1 (spherical) and 1 (hyperbolic).
        """
        return self.gate.means(self.heads(x)[0], self.witnesses)
