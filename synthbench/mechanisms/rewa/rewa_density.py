"""Density-matrix REWA: attention by the fidelity of quantum states."""

from functools import reduce
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.mechanisms.rewa import _operators
from synthbench.mechanisms.rewa._operators import WitnessMap
from synthbench.options import option


@mechanism
class RewaDensity(ScoreAttention):
    r"""The fidelity of two density matrices, :math:`(tr \sqrt{\sqrt{\rho} \sigma \sqrt{\rho}})^2`, over its sum.

    A linear map of q or k, scaled to length 1, gives m x r numbers A. The state is :math:`\rho = A A^T`, positive
    semi-definite with trace 1 and rank at most r. With :math:`\sigma = B B^T` the fidelity is the square of the nuclear
    norm of the r x r matrix :math:`A^T B`, so that no root of an m x m matrix is taken.

    State: every key and value so far.

    Source: Phadke (2025), definition 10.3, over the real numbers. Fidelities lie in [0, 1] and are seldom sharp:
    ``power`` raises them to a power, 1 as published.
    """

    name: ClassVar = "rewa-density"
    label: ClassVar = "Density REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T^2 r^2 (m + r)"
    normaliser: ClassVar = "sum"

    m: int = option(8, "width of a density matrix", low=1, high=128)
    r: int = option(
        2, "largest rank of a density matrix; above 2 every pair costs a singular value decomposition", low=1
    )
    power: float = option(1.0, "power of the fidelity", low=1, high=64)
    shared: bool = option(True, "whether queries and keys share the map to states")  # noqa: FBT003

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the map to factors.

        Raises:
            UsageError: If r exceeds m.
        """
        _operators.check_rank(self.name, self.r, self.m)
        width = self.r * self.m
        self.witness = WitnessMap(self.num_heads, self.head_dim, width, shared=self.shared, generator=generator)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """The fidelity of every pair."""
        states = (
            unit_vectors(self.witness(q, "query")).unflatten(-1, (self.r, self.m)),
            unit_vectors(self.witness(k, "key")).unflatten(-1, (self.r, self.m)),
        )
        return fidelity(*states) ** self.power


def fidelity(left: Float[Tensor, "*batch queries r m"], right: Float[Tensor, "*batch keys r m"]) -> PairScores:
    """Fidelity of every pair of states, given as the transposed factors A and B, each of Frobenius norm 1."""
    r = left.shape[-2]
    if r > 2:
        return nuclear_norm(_operators.grams(left, right).transpose(-3, -2)).square()
    # Entry by entry of Aᵀ B, a third of the time of all entries at once.
    entries = [[row @ column.mT for column in right.unbind(-2)] for row in left.unbind(-2)]
    squares = reduce(torch.add, [entry.square() for row in entries for entry in row])
    if r == 1:
        return squares
    # (s + t)² = s² + t² + 2 s t for the two singular values.
    (a, b), (c, d) = entries
    return squares + 2 * (a * d - b * c).abs()


def nuclear_norm(matrices: Float[Tensor, "*batch rows rows"]) -> Float[Tensor, "*batch"]:
    """The sum of singular values.

    It is the inner product with U Vᵀ, which is also its gradient. Held constant, it needs no gradient of the singular
    vectors, which is infinite where singular values are repeated. Those that are 0 to rounding are left out of it.
    """
    with torch.no_grad():
        u, singular, vh = torch.linalg.svd(matrices, full_matrices=False)
        rounding = matrices.shape[-1] * torch.finfo(matrices.dtype).eps * singular[..., :1]
        direction = (u * (singular > rounding).unsqueeze(-2)) @ vh
    norm: Tensor = (matrices * direction).sum((-2, -1))
    return norm
