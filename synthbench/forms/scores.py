"""Causal attention by a score for every pair of positions, for all queries at once or for blocks of queries."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from synthbench.forms.shapes import AnswerRows, KeyRows, PairScores, Queries, ValueRows
from synthbench.forms.squashing import softermax_parts

Normaliser = Literal["softmax", "sum", "softermax"]
Scores = Callable[[Tensor, Tensor], Tensor]

DENSE_MAX_LENGTH = 1024
"""Largest length at which all scores are held at once: 4 MiB per head in float32."""

BLOCK = 256
"""Largest number of queries in a block of a longer sequence."""

SUM_DELTA = 1e-6
"""Number added to a sum of scores, as in the SLAY paper. The sum is 0 for a query orthogonal to all keys so far."""


def attend(
    scores: Scores, normaliser: Normaliser, q: Queries, k: KeyRows, v: ValueRows, *, power: float = 1.0
) -> AnswerRows:
    """Compute causal attention: output t sums the values at positions 0 to t, weighted by query t's normalised scores.

    ``scores`` is a function from queries and keys to the scores of all pairs.

    If there are fewer queries than keys, the queries belong to the last positions. ``power`` is the exponent of the
    normaliser ``softermax``; the other normalisers ignore it.
    """
    if is_short(q, k):
        return dense(scores, normaliser, q, k, v, power=power)
    return blocked(scores, normaliser, q, k, v, power=power)


def fused(q: Queries, k: KeyRows, v: ValueRows, *, is_causal: bool, scale: float | None = None) -> AnswerRows:
    """Attend by softmax in one fused operation. With ``is_causal``, query i sees only keys 0 to i."""
    # The fused kernels are chosen for four axes only.
    q4, k4, v4 = (x.reshape(-1, *x.shape[-3:]) for x in (q, k, v))
    mixed = scaled_dot_product_attention(q4, k4, v4, is_causal=is_causal, scale=scale)
    return mixed.view(*q.shape[:-1], v.shape[-1])


def is_short(q: Tensor, k: Tensor) -> bool:
    """Return whether there are so few scores that all of them may be in memory at once."""
    return q.shape[-2] <= BLOCK or k.shape[-2] <= DENSE_MAX_LENGTH


def block_size(q: Tensor, k: Tensor) -> int:
    """Return the number of queries per block: ``BLOCK``, or fewer (at least 32) on a CPU, to fit the caches."""
    if q.device.type != "cpu":
        return BLOCK
    # Measured at length 4096, 8 heads of 32, one thread, forward: blocks of 256 took 1.2 (yat-spherical) to 2.1
    # (rewa-euclidean) times as long as blocks of 64; 32 and 128 took 0.95 to 1.25 times as long.
    scores_a_query = k.shape[-2] * math.prod(q.shape[:-2])
    return min(BLOCK, max(32, 2**21 // max(1, scores_a_query)))


def dense(
    scores: Scores, normaliser: Normaliser, q: Queries, k: KeyRows, v: ValueRows, *, power: float = 1.0
) -> AnswerRows:
    """Attend with all scores in memory at once."""
    return _mix(scores(q, k), normaliser, v, power)


def blocked(
    scores: Scores, normaliser: Normaliser, q: Queries, k: KeyRows, v: ValueRows, *, power: float = 1.0
) -> AnswerRows:
    """Attend one block of queries at a time; the backward pass computes the scores of each block again.

    Therefore, the parameters used by the function ``scores`` must not change before the backward pass.
    """

    def attend_block(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return _mix(scores(q, k), normaliser, v, power)

    outs = []
    first, size = k.shape[-2] - q.shape[-2], block_size(q, k)
    for start in range(0, q.shape[-2], size):
        block = q[..., start : start + size, :]
        end = first + start + block.shape[-2]
        arguments = block, k[..., :end, :], v[..., :end, :]
        if torch.is_grad_enabled():
            outs.append(checkpoint(attend_block, *arguments, use_reentrant=False, preserve_rng_state=False))
        else:
            outs.append(attend_block(*arguments))
    return torch.cat(outs, dim=-2)


def weights(scores: PairScores, normaliser: Normaliser, *, power: float = 1.0) -> PairScores:
    """Mask future keys and normalise each query's scores; the last query has the position of the last key."""
    queries, keys = scores.shape[-2:]
    if normaliser == "softmax":
        future = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(keys - queries + 1)
        return scores.masked_fill(future, -torch.inf).softmax(-1)
    numerators, denominator = _parts(scores, normaliser, power)
    return numerators / denominator


def _mix(scores: Tensor, normaliser: Normaliser, v: Tensor, power: float) -> Tensor:
    """Multiply :func:`weights` by the values.

    Except for softmax, the weighted sums of values are divided by the sum of weights at the end, since this is faster.
    """
    if normaliser == "softmax":
        return weights(scores, normaliser) @ v
    numerators, denominator = _parts(scores, normaliser, power)
    return (numerators @ v) / denominator


def _parts(scores: Tensor, normaliser: Normaliser, power: float) -> tuple[Tensor, Tensor]:
    """Return the numerators of the weights, 0 for future keys, and their denominator; not for softmax."""
    masked = scores.tril(scores.shape[-1] - scores.shape[-2])
    if normaliser == "softermax":
        return softermax_parts(masked, power, SUM_DELTA)
    return masked, masked.sum(-1, keepdim=True) + SUM_DELTA
