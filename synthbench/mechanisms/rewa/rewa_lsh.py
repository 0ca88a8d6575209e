"""Sparse geometric REWA: attention to the nearest of the keys that share a hash with the query."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from synthbench.forms.shapes import KeyRows, Keys, PairScores, Queries
from synthbench.layers import project
from synthbench.mechanisms.base import Side, mechanism
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.options import option


@mechanism
class RewaLsh(RewaGeometric):
    r"""``rewa-geometric`` among the K nearest of the keys that a composite hash gives.

    A token's hash in each of L tables has the cell of its Euclidean witness in a randomly shifted grid. It also has the
    signs of the other two witnesses on ``bits`` random hyperplanes. Those of the hyperbolic one tell in which direction
    the boundary lies. The candidates of a query are itself and the keys so far that have its hash in some table. Of
    more than K the nearest K are kept, with all that tie with the last. A query with no more than K keys so far keeps
    all of them, so with K at least the length this is ``rewa-geometric``.

    Hyperplanes and shifts are drawn once and frozen; nothing is sorted across positions, so the future has no part in
    it. Computed by masking all pairs: this shows what the sparse mechanism learns and recalls, not its speed. Positions
    turn witnesses before they are hashed: distances see offsets only, and cells see absolute places.

    State: every key and value so far.

    Source: Phadke (2025), algorithms 2 and 4, whose grid is not shifted: there the origin, around which witnesses lie,
    is a corner of cells. Two parts of lemma 4.5 do not hold. Collisions in the ball do not depend on the distance
    (points in one direction always collide), and they do not fall with the total distance.
    """

    name: ClassVar = "rewa-lsh"
    label: ClassVar = "Sparse REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T^2 (m + n + p + L + d)"

    K: int = option(32, "keys that a query attends to", low=1, high=1_000_000)
    L: int = option(8, "hash tables", low=1, high=256)
    bits: int = option(2, "hyperplanes a table, for the sphere and for the boundary each", low=1, high=32)
    cell: float = option(2.0, "width of a cell of the grid", low=1e-3, high=1e3)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the maps to witnesses, then the frozen shifts, hyperplanes and what makes one integer of a hash."""
        super().initialise(generator)
        self.shifts = nn.Buffer(torch.rand(self.num_heads, 1, self.L * self.m, generator=generator))
        for geometry, width in (("spherical", self.n), ("hyperbolic", self.p)):
            planes = torch.randn(self.num_heads, width, self.L * self.bits, generator=generator)
            setattr(self, f"{geometry}_planes", nn.Buffer(planes))
        for geometry, width in (("euclidean", self.m), ("spherical", self.bits), ("hyperbolic", self.bits)):
            # Odd, so that a single difference never vanishes modulo 2^64.
            factors = torch.randint(0, 2**62, (self.L * width,), generator=generator) * 2 + 1
            setattr(self, f"{geometry}_factors", nn.Buffer(factors))

    @torch.no_grad()
    def hashes(self, x: KeyRows, side: Side, first: int = 0) -> Int[Tensor, "*batch length tables"]:
        """One integer a token and table; two composite hashes that differ give the same one by a chance of 2^-60."""
        witnesses = self.metric.witnesses
        total = torch.zeros((), dtype=torch.int64, device=x.device)
        for geometry in witnesses.widths:
            points = witnesses.points(geometry, x, side, first)
            if geometry == "euclidean":
                parts = (torch.cat([points] * self.L, -1) / self.cell + self.shifts).floor().long()
            else:
                parts = (project(points, getattr(self, f"{geometry}_planes")) > 0).long()
            factors = getattr(self, f"{geometry}_factors") * witnesses.mask(geometry).long()
            total = total + (parts * factors).unflatten(-1, (self.L, -1)).sum(-1)
        return total

    @torch.no_grad()
    def candidates(self, q: Queries, k: Keys) -> Bool[Tensor, "*batch queries keys"]:
        """Mask the keys a query may attend to before the nearest are taken; the last query stands at the last key."""
        query_hashes = self.hashes(q, "query", k.shape[-2] - q.shape[-2]).unsqueeze(-2)
        key_hashes = self.hashes(k, "key").unsqueeze(-3)
        keys = torch.arange(k.shape[-2], device=q.device)
        queries = keys[-q.shape[-2] :].unsqueeze(-1)
        allowed = (keys == queries) | (queries < self.K)
        for table in range(self.L):
            allowed = allowed | (query_hashes[..., table] == key_hashes[..., table])
        return allowed & (keys <= queries)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Minus the distance over the temperature where a key is kept, minus infinity elsewhere."""
        scores = self.metric.scores(q, k)
        return scores.masked_fill(~nearest(scores.detach(), self.candidates(q, k), self.K), -torch.inf)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Weights, temperature and effective curvature a head, and the recall of the true K nearest keys.

        The recall is the share of them among the candidates, a mean over the queries with more than K keys so far; 1 if
        there are none.
        """
        q, k, _ = self.heads(x)
        if q.shape[-2] <= self.K:
            recall = torch.ones(self.num_heads, dtype=x.dtype, device=x.device).expand(*x.shape[:-3], -1)
        else:
            causal = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=x.device).tril()
            true = nearest(self.metric.scores(q, k), causal, self.K)[..., self.K :, :]
            found = true & self.candidates(q, k)[..., self.K :, :]
            recall = (found.sum(-1) / true.sum(-1)).to(x.dtype).mean(-1).mean(-2)
        return self.metric.metrics() | {"recall": recall}


def nearest(
    scores: PairScores, candidates: Bool[Tensor, "*#batch queries keys"], count: int
) -> Bool[Tensor, "*batch queries keys"]:
    """As many candidates of each query as ``count`` says, those with the largest scores, and all ties with the last."""
    masked = scores.masked_fill(~candidates, -torch.inf)
    last = masked.topk(min(count, masked.shape[-1]), dim=-1).values[..., -1:]
    return candidates & (masked >= last)
