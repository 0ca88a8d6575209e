"""Kernels of the mechanisms for the figures, computed with one head in float64."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms import linear
from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.mechanisms.base import FeatureAttention, ScoreAttention

DIM = 16
"""Width of a head in the SLAY paper's tasks."""
EPSILON = 1e-3
"""Epsilon of the Yat kernels: their default, and the value in table 9 of the SLAY paper."""
DRAWS = tuple(range(20))
"""Seeds of random features."""
SIZES: Mapping[str, Mapping[str, Any]] = {
    "R=3 P=8 D=16": {"R": 3, "P": 8, "D": 16},
    "R=3 P=64 D=256": {"R": 3, "P": 64, "D": 256},
}
"""Sizes of SLAY: those of table 9 of the paper, and many more features in the polynomial and random factors."""

Cosines = Float[np.ndarray, " keys"]


def normal(seed: int, *shape: int) -> Float[Tensor, "..."]:
    """Draw independent N(0, 1) numbers in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def head(name: str, seed: int = 0, dim: int = DIM, **arguments: Any) -> Attention:
    """Build a mechanism of one head of some width; the seed draws its features."""
    generator = torch.Generator().manual_seed(seed)
    unit = MECHANISMS[name](model_dim=dim, num_heads=1, generator=generator, **arguments)
    return cast("Attention", unit.double().requires_grad_(requires_grad=False))


def kernel(unit: Attention, q: Queries, k: Keys) -> PairScores:
    """Compute the weight of each key for each query, before normalisation.

    Raises:
        TypeError: If the mechanism is no attention by a kernel.
    """
    q, k = q.unsqueeze(-3), k.unsqueeze(-3)  # the axis of heads, of which there is one
    if isinstance(unit, ScoreAttention):
        scores = unit.scores(q, k).squeeze(-3)
        return scores.exp() if unit.normaliser == "softmax" else scores
    if not isinstance(unit, FeatureAttention):
        raise TypeError(f"{type(unit).__name__} has no kernel")
    return linear.kernel(unit.factors(q, "query"), unit.factors(k, "key")).squeeze(-3)


def at_cosines(cosines: Float[Tensor, " keys"]) -> tuple[Float[Tensor, "1 dim"], Float[Tensor, "keys dim"]]:
    """Return a query, and keys at the given cosines to it, all in one plane and of length √dim."""
    q, aside = math.sqrt(DIM) * torch.eye(2, DIM, dtype=torch.float64).unsqueeze(1)
    return q, cosines.unsqueeze(-1) * q + (1 - cosines.square()).clamp(min=0).sqrt().unsqueeze(-1) * aside


def response(unit: Attention, cosines: Cosines) -> Cosines:
    """Compute the kernel at some cosines."""
    return np.asarray(kernel(unit, *at_cosines(torch.from_numpy(cosines)))[0])


def slope(unit: Attention, cosines: Cosines) -> Cosines:
    """Differentiate the kernel with respect to the cosine, at cosines strictly between -1 and 1."""
    x = torch.from_numpy(cosines).requires_grad_()
    return np.asarray(torch.autograd.grad(kernel(unit, *at_cosines(x)).sum(), x)[0])


def responses(
    name: str, cosines: Cosines, seeds: Sequence[int] = DRAWS, **arguments: Any
) -> Float[np.ndarray, "seeds keys"]:
    """Compute the kernel at some cosines, divided by its mean for random keys; one row per draw of the features.

    The mean is over all draws, since some kernels have a negative mean in a single draw.
    """
    units, random_keys = [head(name, seed, **arguments) for seed in seeds], normal(0, 4096, DIM)
    keys = math.sqrt(DIM) * random_keys / random_keys.norm(dim=-1, keepdim=True)  # as long as the query
    query, _ = at_cosines(torch.ones(1, dtype=torch.float64))
    scale = np.mean([float(kernel(unit, query, keys).mean()) for unit in units])
    return np.asarray(np.stack([response(unit, cosines) for unit in units]) / scale)


def attention_map(
    unit: Attention, q: Float[Tensor, "batch length dim"], k: Float[Tensor, "batch length dim"]
) -> Float[Tensor, "batch length length"]:
    """Return the weights that a mechanism of one head gives the values: its outputs for the identity."""
    identity = torch.eye(q.shape[-2], dtype=q.dtype).expand(len(q), 1, -1, -1)
    return unit.attend(q.unsqueeze(1), k.unsqueeze(1), identity).squeeze(1)
