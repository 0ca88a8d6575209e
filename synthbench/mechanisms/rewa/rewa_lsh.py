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
    r"""Attention as in ``rewa-geometric``, but only to the K nearest of the keys that share a hash with the query.

    There are L hash tables. Each query and key has three witnesses: points in Euclidean space, on the sphere and in the
    hyperbolic ball. The hash of a query or key in one table consists of a grid cell and several signs. The grid cell is
    the cell of a randomly shifted grid that contains the Euclidean witness. The spherical and the hyperbolic witness
    give ``bits`` signs each. A sign tells on which side of a random hyperplane the witness lies; for the hyperbolic
    witness, the sign depends only on the direction from the centre of the ball.

    The candidates of a query are the key at its own position and all earlier keys with the same hash in at least one
    table. If there are more than K candidates, the query attends only to the K nearest candidates, and to any others at
    the same distance as the K-th. The first K queries attend to all keys up to their position. So if K is at least the
    length, this mechanism equals ``rewa-geometric``.

    Hyperplanes and shifts are drawn once and frozen. Later tokens do not influence which keys a query attends to. All
    pairs are computed and then masked, so this code is no faster than ``rewa-geometric``. Witnesses are rotated by
    position before they are hashed. So distances depend on offsets between positions only, but the cells of the grid
    depend on absolute positions.

    State: every key and value so far.

    Source: Phadke (2025), algorithms 2 and 4. The paper's grid is not shifted, so cells meet at the origin, around
    which the witnesses lie. Lemma 4.5 claims that collisions in the ball depend on the distance, and that collisions
    become rarer as the total distance grows. Both claims are wrong: points in the same direction from the centre of the
    ball always collide.
    """

    name: ClassVar = "rewa-lsh"
    label: ClassVar = "Sparse REWA"
    complexity: ClassVar = "T^2 (m + n + p + L + d)"

    K: int = option(32, "keys that a query attends to", low=1, high=1_000_000)
    L: int = option(8, "hash tables", low=1, high=256)
    bits: int = option(2, "hyperplanes a table, for the sphere and for the boundary each", low=1, high=32)
    cell: float = option(2.0, "width of a cell of the grid", low=1e-3, high=1e3)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the maps to witnesses, then frozen shifts, hyperplanes, and factors that turn a hash into an integer."""
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
        """Compute the hash of every token (a grid cell and several signs) in every table, as one integer per table.

        Two different hashes get the same integer with probability 2^-60.

        The first row of ``x`` has the position ``first``.
        """
        total = torch.zeros((), dtype=torch.int64, device=x.device)
        for geometry in self.witnesses.widths:
            points = self.witnesses.points(geometry, x, side, first)
            if geometry == "euclidean":
                parts = (torch.cat([points] * self.L, -1) / self.cell + self.shifts).floor().long()
            else:
                parts = (project(points, getattr(self, f"{geometry}_planes")) > 0).long()
            factors = getattr(self, f"{geometry}_factors") * self.witnesses.mask(geometry).long()
            total = total + (parts * factors).unflatten(-1, (self.L, -1)).sum(-1)
        return total

    @torch.no_grad()
    def candidates(self, q: Queries, k: Keys) -> Bool[Tensor, "*batch queries keys"]:
        """Compute a mask of each query's candidate keys; the last query has the position of the last key."""
        query_hashes = self.hashes(q, "query", k.shape[-2] - q.shape[-2]).unsqueeze(-2)
        key_hashes = self.hashes(k, "key").unsqueeze(-3)
        keys = torch.arange(k.shape[-2], device=q.device)
        queries = keys[-q.shape[-2] :].unsqueeze(-1)
        allowed = (keys == queries) | (queries < self.K)
        for table in range(self.L):
            allowed = allowed | (query_hashes[..., table] == key_hashes[..., table])
        return allowed & (keys <= queries)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute scores as in ``rewa-geometric`` for the K nearest candidates; all other keys get -inf."""
        scores = super().scores(q, k)
        return scores.masked_fill(~nearest(scores.detach(), self.candidates(q, k), self.K), -torch.inf)

    def metrics(self, x: Tensor) -> dict[str, Tensor]:
        """Return ``alpha``, ``beta``, ``gamma``, ``kappa``, ``tau`` and ``recall``, each with one value per head.

        The first three are the weights of Euclidean, spherical and hyperbolic distances. Kappa, the effective
        curvature, lies between -1 (spherical) and 1 (hyperbolic). Tau is the temperature. The recall is the fraction of
        a query's true K nearest keys that share a hash with the query. It is averaged over the queries with more than K
        keys up to their position, and is 1 if there are no such queries.
        """
        q, k, _ = self.heads(x)
        if q.shape[-2] <= self.K:
            recall = torch.ones(self.num_heads, dtype=x.dtype, device=x.device).expand(*x.shape[:-3], -1)
        else:
            causal = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=x.device).tril()
            true = nearest(super().scores(q, k), causal, self.K)[..., self.K :, :]
            found = true & self.candidates(q, k)[..., self.K :, :]
            recall = (found.sum(-1) / true.sum(-1)).to(x.dtype).mean(-1).mean(-2)
        return super().metrics(x) | {"recall": recall}


def nearest(
    scores: PairScores, candidates: Bool[Tensor, "*#batch queries keys"], count: int
) -> Bool[Tensor, "*batch queries keys"]:
    """Compute a mask of each query's ``count`` best-scored candidates, including candidates that tie with the last."""
    masked = scores.masked_fill(~candidates, -torch.inf)
    last = masked.topk(min(count, masked.shape[-1]), dim=-1).values[..., -1:]
    return candidates & (masked >= last)
