"""Adaptive REWA: every query weighs the geometries for itself."""

from typing import ClassVar

import torch
from torch import Tensor

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa._geometry import Gate, Witnesses, mean_a_head, named
from synthbench.mechanisms.rewa._operators import one_a_head
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.options import option


@mechanism
class RewaAdaptive(RewaGeometric):
    r"""Softmax of :math:`-(\alpha_i d_E^\pi + \beta_i d_S^\pi + \gamma_i d_H^\pi) / \tau` for query i.

    Witnesses and distances are those of ``rewa-geometric``. The weights are the softmax of three outputs of a network a
    head with one hidden layer, which reads the query. A width of 0 drops a geometry; two must be left.

    The curriculum lets the sphere act in phase 1, Euclidean space too in phase 2, all after that: the softmax is over
    those that act.

    State: every key and value so far.

    Source: Phadke (2025), algorithm 8, whose network reads the token; ours reads the head's query, so heads can differ.
    As there, weights that sum to 1 replace those that make up for widths. The distance is not symmetric: i's weights.
    """

    name: ClassVar = "rewa-adaptive"
    label: ClassVar = "Adaptive REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T^2 (m + n + p + d)"

    hidden: int = option(16, "hidden units of the network that weighs the geometries", low=1, high=1024)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the maps to witnesses, then the network."""
        heads, dim = self.num_heads, self.head_dim
        self.witnesses = self.drawn_witnesses(generator)
        self.gate = Gate(self.name, self.witnesses, num_heads=heads, dim=dim, hidden=self.hidden, generator=generator)
        self.temperature = one_a_head(heads, self.tau)

    @property
    def geometric(self) -> Witnesses:
        """The maps to witnesses."""
        return self.witnesses

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Minus the distance of every pair, by the query's weights, over the temperature."""
        total = torch.zeros((), dtype=q.dtype, device=q.device)
        for geometry, share in self.gate(q, self.witnesses).items():
            total = total - share / self.temperature() * self.witnesses.distance(geometry, q, k)
        return total

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Mean weights over the queries, the effective curvature they give, and the temperature, a head."""
        shares = self.gate(self.heads(x)[0], self.witnesses)
        means = named({geometry: mean_a_head(share) for geometry, share in shares.items()})
        return means | {"tau": self.temperature()[..., 0, 0]}
