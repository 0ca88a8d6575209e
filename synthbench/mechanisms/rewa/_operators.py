"""Parts that REWA mechanisms share: maps to witnesses, low-rank operators, distances with finite gradients."""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from synthbench.errors import UsageError
from synthbench.forms.shapes import PairScores
from synthbench.layers import ToTensor, project, uniform
from synthbench.mechanisms.base import Attention, Side

Factors = tuple[Tensor, Tensor]
"""The factors of the m x m operators U Vᵀ, one per token: Uᵀ and Vᵀ, each [..., length, r, m]."""


class WitnessMap(nn.Module):
    """Learned linear maps from queries and keys to their witnesses (vectors that represent them), one map per head.

    Queries and keys may share the maps.
    """

    def __init__(
        self, num_heads: int, dim: int, width: int, *, shared: bool, generator: torch.Generator | None
    ) -> None:
        """Draw the weights uniformly between ±1/√dim, like those of the projections to q, k and v."""
        super().__init__()
        bound = 1 / math.sqrt(dim)
        self.query = uniform((num_heads, dim, width), bound, generator)
        self.key = None if shared else uniform((num_heads, dim, width), bound, generator)

    def forward(self, x: Float[Tensor, "*batch length dim"], side: Side) -> Float[Tensor, "*batch length width"]:
        """Map the queries or keys of every head."""
        return project(x, self.query if side == "query" or self.key is None else self.key)


class Positive(nn.Module):
    """Learned positive numbers with given initial values, stored as their inverse softplus."""

    __call__: ToTensor

    def __init__(self, start: Float[Tensor, "..."]) -> None:
        """Store the inverse softplus of every initial value."""
        super().__init__()
        self.raw = nn.Parameter(start + (-torch.expm1(-start)).log())

    def forward(self) -> Float[Tensor, "..."]:
        """Compute the positive numbers."""
        return softplus(self.raw)


def one_a_head(num_heads: int, start: float) -> Positive:
    """Create one learned positive number per head, [heads, 1, 1], with the initial value ``start``."""
    return Positive(torch.full((num_heads, 1, 1), start))


class TemperedAttention(Attention):
    """Attention with one learned temperature per head, made by :func:`one_a_head` and reported as ``tau``."""

    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    temperature: Positive

    def metrics(self, x: Tensor) -> dict[str, Tensor]:  # noqa: ARG002 - learned, whatever the inputs
        """Return the temperature of every head."""
        return {"tau": self.temperature()[..., 0, 0]}


def check_rank(name: str, r: int, m: int) -> None:
    """Check that the rank r of an operator does not exceed its width m.

    Raises:
        UsageError: If r exceeds m.
    """
    if r > m:
        raise UsageError(f"{name}:r is {r}; allowed: int from 1 to m, here {m}")


def factors(witness: Float[Tensor, "*batch length width"], r: int) -> Factors:
    """Cut each token's vector of width 2 r m into the factors Uᵀ and Vᵀ of an m x m operator U Vᵀ of rank r."""
    left, right = witness.unflatten(-1, (2, r, -1)).unbind(-3)
    return left, right


def operators(pair: Factors) -> Float[Tensor, "*batch length m m"]:
    """Compute the operators U Vᵀ, one per token, from their factors Uᵀ and Vᵀ."""
    product: Tensor = pair[0].mT @ pair[1]
    return product


def grams(
    left: Float[Tensor, "*batch queries r m"], right: Float[Tensor, "*batch keys r m"]
) -> Float[Tensor, "*batch queries r keys r"]:
    """Compute, for every query and key, the r x r inner products between the rows of their factors."""
    r = left.shape[-2]
    products: Tensor = left.flatten(-3, -2) @ right.flatten(-3, -2).mT
    by_pair: Tensor = products.unflatten(-1, (-1, r)).unflatten(-3, (-1, r))
    return by_pair


def hilbert_schmidt_product(left: Factors, right: Factors) -> PairScores:
    """Compute tr(Aᵀ B) for every pair of operators A and B, by the cheaper of two methods.

    The first method multiplies the flattened m x m operators, which takes m² operations per pair. The second method
    multiplies their factors of rank r, which takes 2 r² m operations. Neither method forms a tensor of queries x keys x
    m².
    """
    r, m = left[0].shape[-2:]
    if m <= 2 * r * r:
        return operators(left).flatten(-2) @ operators(right).flatten(-2).mT
    # The sum of all entries of (U_Aᵀ U_B) ∘ (V_Aᵀ V_B), with ∘ elementwise.
    return (grams(left[0], right[0]) * grams(left[1], right[1])).sum((-3, -1))


def hilbert_schmidt_norms(pair: Factors) -> Float[Tensor, "*batch length"]:
    """Compute the squared Hilbert–Schmidt norm tr(Aᵀ A) of every token's operator A, from r x r matrices."""
    left, right = pair
    return ((left @ left.mT) * (right @ right.mT)).sum((-2, -1))


def distances(
    products: PairScores,
    query_norms: Float[Tensor, "*batch queries"],
    key_norms: Float[Tensor, "*batch keys"],
    power: int,
) -> PairScores:
    """Compute the distances of all pairs, or their squares if ``power`` is 2, from inner products and squared norms.

    The squared distance is a difference and can round below 0. Before the root is taken, a square below its rounding
    error is replaced by that error, so that the gradient is 0 instead of infinite.
    """
    norms = query_norms.unsqueeze(-1) + key_norms.unsqueeze(-2)
    squared = norms - 2 * products
    if power == 2:
        return squared.clamp(min=0)
    limits = torch.finfo(norms.dtype)
    return torch.maximum(squared, (limits.eps * norms.detach()).clamp(min=limits.tiny)).sqrt()


def arc(cosines: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Compute arccos; where the cosine is ±1 up to rounding, the gradient is 0 instead of infinite."""
    limit = 1 - 4 * torch.finfo(cosines.dtype).eps
    return cosines.clamp(-limit, limit).acos()
