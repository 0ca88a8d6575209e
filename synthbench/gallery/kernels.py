"""Kernels of the mechanisms, as the figures read them off the units: one head, in float64."""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.mechanisms.base import FeatureAttention, ScoreAttention

DIM = 16
"""Width of a head of the SLAY paper's tasks."""
EPSILON = 1e-3
"""The default of the Yat kernels, and what the SLAY paper's table 9 names."""
DRAWS = tuple(range(20))
"""Seeds of random features."""
RANDOM_KEYS = 4096


def head(name: str, seed: int = 0, dim: int = DIM, **arguments: Any) -> Attention:
    """A mechanism of one head of some width; the seed draws its features."""
    generator = torch.Generator().manual_seed(seed)
    unit = MECHANISMS[name](model_dim=dim, num_heads=1, generator=generator, **arguments)
    return cast("Attention", unit.double().requires_grad_(requires_grad=False))


def kernel(unit: Attention, q: Queries, k: Keys) -> PairScores:
    """What a key weighs for a query before anything is divided by a sum.

    Raises:
        TypeError: If the mechanism is no attention by a kernel.
    """
    if isinstance(unit, ScoreAttention):
        scores = unit.scores(q, k)
        return scores.exp() if unit.normaliser == "softmax" else scores
    if not isinstance(unit, FeatureAttention):
        raise TypeError(f"{type(unit).__name__} has no kernel")
    # Features are drawn by head; there is one.
    pairs = zip(unit.factors(q.unsqueeze(-3), "query"), unit.factors(k.unsqueeze(-3), "key"), strict=True)
    return math.prod((a @ b.mT for a, b in pairs), start=torch.ones((), dtype=q.dtype)).squeeze(-3)


def at_cosines(
    cosines: Float[Tensor, " keys"], dim: int = DIM
) -> tuple[Float[Tensor, "1 dim"], Float[Tensor, "keys dim"]]:
    """A query, and keys at some cosines with it: all in one plane, as long as N(0, I) draws are, √dim."""
    q, aside = math.sqrt(dim) * torch.eye(2, dim, dtype=torch.float64).unsqueeze(1)
    return q, cosines.unsqueeze(-1) * q + (1 - cosines.square()).clamp(min=0).sqrt().unsqueeze(-1) * aside


def response(unit: Attention, cosines: Float[np.ndarray, " keys"], dim: int = DIM) -> Float[np.ndarray, " keys"]:
    """The kernel at some cosines."""
    values: np.ndarray = kernel(unit, *at_cosines(torch.from_numpy(cosines), dim))[0].numpy()
    return values


def random_response(unit: Attention) -> float:
    """The mean of the kernel over keys that are as long as the query of :func:`at_cosines`, in random directions."""
    keys = normal(0, RANDOM_KEYS, DIM)
    keys = math.sqrt(DIM) * keys / keys.norm(dim=-1, keepdim=True)
    return float(kernel(unit, at_cosines(torch.ones(1, dtype=torch.float64))[0], keys).mean())


def responses(
    name: str, cosines: Float[np.ndarray, " keys"], seeds: Sequence[int] = DRAWS, **arguments: int
) -> Float[np.ndarray, "seeds keys"]:
    """The kernel at some cosines over its mean for random keys, one row a draw of the features.

    The mean is that over all draws: some kernels are negative on average in one of them.
    """
    units = [head(name, seed, **arguments) for seed in seeds]
    scale = np.mean([random_response(unit) for unit in units])
    relative: np.ndarray = np.stack([response(unit, cosines) for unit in units]) / scale
    return relative


def normal(seed: int, *shape: int) -> Float[Tensor, "..."]:
    """Independent N(0, 1) numbers in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention_map(
    unit: Attention, q: Float[Tensor, "batch length dim"], k: Float[Tensor, "batch length dim"]
) -> Float[Tensor, "batch length length"]:
    """The weights that a mechanism of one head gives the values: what it makes of the identity."""
    identity = torch.eye(q.shape[-2], dtype=q.dtype).expand(len(q), 1, -1, -1)
    return unit.attend(q.unsqueeze(1), k.unsqueeze(1), identity).squeeze(1)
