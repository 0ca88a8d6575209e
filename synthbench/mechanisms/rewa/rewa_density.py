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
    r"""Attention by the fidelity of density matrices, :math:`(tr \sqrt{\sqrt{\rho} \sigma \sqrt{\rho}})^2`.

    A linear map turns a query into the entries of an m x r matrix A, which is then scaled to norm 1. The density matrix
    of the query is :math:`\rho = A A^T`, positive semi-definite with trace 1 and rank at most r. A key likewise has a
    matrix B and the density matrix :math:`\sigma = B B^T`. The fidelity is the square of the nuclear norm of the r x r
    matrix :math:`A^T B`. The weights of a query are its fidelities divided by their sum over the keys.

    State: every key and value so far.

    Source: Phadke (2025), definition 10.3, over the real numbers. Fidelities lie in [0, 1] and seldom differ sharply
    between keys. The option ``power`` raises each fidelity to an exponent before normalisation; its default is 1, as in
    the paper.
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
        """Draw the map from queries and keys to the factors of density matrices.

        Raises:
            UsageError: If r exceeds m.
        """
        _operators.check_rank(self.name, self.r, self.m)
        width = self.r * self.m
        self.witness = WitnessMap(self.num_heads, self.head_dim, width, shared=self.shared, generator=generator)

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute the fidelity of every pair of a query and a key, raised to ``power``."""
        states = (
            unit_vectors(self.witness(q, "query")).unflatten(-1, (self.r, self.m)),
            unit_vectors(self.witness(k, "key")).unflatten(-1, (self.r, self.m)),
        )
        return fidelity(*states) ** self.power


def fidelity(left: Float[Tensor, "*batch queries r m"], right: Float[Tensor, "*batch keys r m"]) -> PairScores:
    """Compute the fidelity of every pair of density matrices A Aᵀ and B Bᵀ; Aᵀ and Bᵀ have Frobenius norm 1."""
    r = left.shape[-2]
    if r > 2:
        return nuclear_norm(_operators.grams(left, right).transpose(-3, -2)).square()
    # Computing Aᵀ B entry by entry takes a third of the time of all entries at once.
    entries = [[row @ column.mT for column in right.unbind(-2)] for row in left.unbind(-2)]
    squares = reduce(torch.add, [entry.square() for row in entries for entry in row])
    if r == 1:
        return squares
    # (s + t)² = s² + t² + 2 s t for the two singular values.
    (a, b), (c, d) = entries
    return squares + 2 * (a * d - b * c).abs()


def nuclear_norm(matrices: Float[Tensor, "*batch rows rows"]) -> Float[Tensor, "*batch"]:
    """Compute the sum of the singular values of each matrix.

    The sum is the inner product of the matrix with U Vᵀ, where U and V hold the singular vectors. The backward pass
    treats U Vᵀ, the gradient of the sum, as a constant. Singular values that are 0 up to rounding are left out of U Vᵀ.
    """
    with torch.no_grad():
        u, singular, vh = torch.linalg.svd(matrices, full_matrices=False)
        rounding = matrices.shape[-1] * torch.finfo(matrices.dtype).eps * singular[..., :1]
        direction = (u * (singular > rounding).unsqueeze(-2)) @ vh
    norm: Tensor = (matrices * direction).sum((-2, -1))
    return norm
