"""Topological REWA: attention to tokens whose neighbours are spread as widely as the neighbours of the query."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from synthbench.forms import scores
from synthbench.forms.shapes import AnswerHeads, KeyHeads, QueryHeads, ValueHeads
from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa import _operators
from synthbench.mechanisms.rewa._operators import TemperedAttention, WitnessMap
from synthbench.options import option

BLOCK = 256
"""Number of tokens whose distances to all keys are held at once."""


@mechanism
class RewaTopological(TemperedAttention):
    r"""Softmax of the negative distance :math:`-W_2(PD_i, PD_j) / \tau` between the persistence diagrams of q and k.

    Here, PD is a persistence diagram and :math:`W_2` the 2-Wasserstein distance. In each head, a linear map turns every
    query and key into a vector of m numbers, its witness. The diagram of a query or key is computed from its own
    witness and those of its nearest keys, whose number is the option ``k``. A query sees the keys up to its position; a
    key sees only earlier keys. The diagram has one point (0, d) for each edge of the minimum spanning tree of these
    ``k`` + 1 witnesses. The number d is the length of the edge, which is the scale at which two clusters of witnesses
    merge. Each head learns a temperature.

    Three things are approximate. First, the diagram has dimension 0 only, so it ignores loops and voids. Second, if
    there are fewer than ``k`` keys to see, the token's own witness replaces each missing witness, which adds points
    (0, 0) on the diagonal. Third, :math:`W_2` is computed as :math:`\sqrt{\sum_n (d_n - d'_n)^2}`, with the points of
    both diagrams sorted by d. The exact distance may match two very different points to the diagonal instead of to each
    other. Gradients pass through the lengths of the edges, but not through the choice of nearest keys and of edges.

    State: every key and value so far.

    Source: Phadke (2025), definition 10.5 and eq. 116, which leave the filtration, the embedding and ``k`` open.
    """

    name: ClassVar = "rewa-topological"
    label: ClassVar = "Topological REWA"
    complexity: ClassVar = "T^2 m + T k^2 m"
    takes_last_queries: ClassVar = True

    m: int = option(15, "dimensions of a witness", low=1, high=1024)
    k: int = option(4, "neighbours of a token: the length of its diagram", low=1, high=64)
    tau: float = option(1.0, "temperature to start from", low=1e-3, high=1e3)
    shared: bool = option(True, "whether queries and keys share the map to witnesses")  # noqa: FBT003

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the map to witnesses."""
        self.witness = WitnessMap(self.num_heads, self.head_dim, self.m, shared=self.shared, generator=generator)
        self.temperature = _operators.one_a_head(self.num_heads, self.tau)

    def attend(self, q: QueryHeads, k: KeyHeads, v: ValueHeads) -> AnswerHeads:
        """Attend by the distances between persistence diagrams."""
        if not k.numel():
            return v[..., v.shape[-2] - q.shape[-2] :, :]
        keys = self.witness(k, "key")
        of_query = self.diagrams(self.witness(q, "query"), keys, num_seen=k.shape[-2] - q.shape[-2] + 1)
        return scores.attend(self._scores, "softmax", of_query, self.diagrams(keys, keys, num_seen=0), v)

    def diagrams(
        self, points: Float[Tensor, "*batch rows m"], keys: Float[Tensor, "*batch length m"], num_seen: int
    ) -> Float[Tensor, "*batch rows k"]:
        """Compute the sorted edge lengths of the minimum spanning tree of each point and its nearest keys.

        Args:
            points: Witnesses of the queries or keys whose diagrams are computed.
            keys: Witnesses of all keys, from which the nearest keys are chosen.
            num_seen: Number of keys that the first point sees; every next point sees one more.
        """
        index, is_there = nearest(points, keys, self.k, num_seen)
        index = index.flatten(-2).unsqueeze(-1).expand(*index.shape[:-2], -1, keys.shape[-1])
        neighbours = keys.gather(-2, index).unflatten(-2, (-1, self.k))
        own = points.unsqueeze(-2)
        cloud = torch.cat([own, torch.where(is_there.unsqueeze(-1), neighbours, own)], dim=-2)
        squares = (cloud.unsqueeze(-2) - cloud.unsqueeze(-3)).square().sum(-1)
        distances = squares.clamp(min=torch.finfo(squares.dtype).tiny).sqrt()  # its gradient at 0 is then 0
        return spanning_edges(distances).sort(-1).values

    def _scores(self, of_query: Tensor, of_key: Tensor) -> Tensor:
        norms = of_query.square().sum(-1), of_key.square().sum(-1)
        return -_operators.distances(of_query @ of_key.mT, *norms, power=1) / self.temperature()


@torch.no_grad()
def nearest(
    points: Float[Tensor, "*batch rows m"], keys: Float[Tensor, "*batch length m"], count: int, num_seen: int
) -> tuple[Int[Tensor, "*batch rows count"], Bool[Tensor, "*batch rows count"]]:
    """Return the indices of the ``count`` nearest keys of every point, and a mask, True where there is such a key.

    For point n, counted from 0, only the first ``num_seen + n`` keys count.
    """
    length = keys.shape[-2]
    column = torch.arange(length, device=keys.device)
    norms = keys.square().sum(-1).unsqueeze(-2)
    found = []
    for start, rows in zip(range(0, points.shape[-2], BLOCK), points.split(BLOCK, dim=-2), strict=True):
        row = torch.arange(start, start + rows.shape[-2], device=keys.device).unsqueeze(-1)
        closeness = (2 * rows @ keys.mT - norms).masked_fill(column >= num_seen + row, -torch.inf)
        found.append(closeness.topk(min(count, length), dim=-1))
    values, index = (torch.cat(parts, dim=-2) for parts in zip(*found, strict=True))
    spare = (0, count - index.shape[-1])
    return pad(index, spare), pad(values > -torch.inf, spare)


def spanning_edges(distances: Float[Tensor, "*batch nodes nodes"]) -> Float[Tensor, "*batch edges"]:
    """Compute the edge lengths of a minimum spanning tree of each graph by Prim's algorithm, all graphs at once."""
    num_nodes = distances.shape[-1]
    is_in_tree = torch.arange(num_nodes, device=distances.device).expand(distances.shape[:-1]) == 0
    to_tree = distances[..., 0, :]
    edges = []
    for _ in range(num_nodes - 1):
        edge, node = to_tree.masked_fill(is_in_tree, torch.inf).min(-1, keepdim=True)
        edges.append(edge)
        is_in_tree = is_in_tree.scatter(-1, node, value=True)
        from_node = distances.gather(-2, node.unsqueeze(-1).expand(*node.shape, num_nodes)).squeeze(-2)
        to_tree = torch.minimum(to_tree, from_node)
    return torch.cat(edges, dim=-1)
