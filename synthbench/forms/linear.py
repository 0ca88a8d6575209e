"""Causal attention with a kernel that is an inner product of features, in four forms (ways to compute it).

The kernel κ(q, k) is the product over factors i of ⟨a_i(q), b_i(k)⟩. With the guard N, which keeps the denominator from
0, all forms compute

    out_t = Σ_{s≤t} κ(q_t, k_s) v_s / N(Σ_{s≤t} κ(q_t, k_s)),      N(z) = z + delta  or  max(z, delta).

A column of ones is appended to the values, so that the denominator is one more column of the numerator.
"""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import repeat
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from synthbench.forms.shapes import AnswerRows, ValueRows

Factors = tuple[Tensor, ...]
"""Factors of features, each [..., length, m_i]. The features are the tensor product of the factors. This product has
the width m_1 m_2 ..., and only :func:`step` builds it."""

Guard = Literal["add", "clamp"]
Side = Literal["query", "key"]

CHUNK = 64
GPU_GRAM_MAX_LENGTH = 512
"""Length up to which a GPU uses :func:`gram`, which needs few launches. The value is estimated, not measured."""
MAX_AT_ONCE = 2**28
"""Limit on the size of the largest tensor of :func:`at_once`, in numbers: 1 GiB in float32. A training step holds a few
such tensors."""


def gram_max_length(num_features: int, device: torch.device) -> int:
    """Return the sequence length, in tokens, up to which :func:`gram` is faster than :func:`chunked`."""
    if device.type != "cpu":
        return GPU_GRAM_MAX_LENGTH
    # Measured forward and backward, one thread, batch 4, 4 heads of 16: the two cross near 100 for 16 features, 110
    # for 64, 200 for 384, 340 for 1024, since the state that a chunk reads and writes grows with the features.
    return 96 + num_features // 4


def attend(query_factors: Factors, key_factors: Factors, v: ValueRows, *, guard: Guard, delta: float) -> AnswerRows:
    """Attend by the fastest function of this module for this length and device; all functions give the same result.

    If there are fewer queries than keys, the queries belong to the last positions, and :func:`gram` is used.
    """
    has_few_queries = query_factors[0].shape[-2] < v.shape[-2]
    if has_few_queries or v.shape[-2] <= gram_max_length(rank(key_factors), v.device):
        form = gram
    else:
        form = at_once if takes_at_once(key_factors, v) else chunked
    return form(query_factors, key_factors, v, guard=guard, delta=delta)


def takes_at_once(key_factors: Factors, v: Tensor) -> bool:
    """Return True if :func:`at_once` should be used, and False if :func:`chunked` should be used.

    The result is True on a GPU, unless the tensors of :func:`at_once` would be too large.

    The result is False on a CPU, where :func:`chunked` is faster, since its tensors fit the caches.
    """
    if v.device.type == "cpu":
        return False
    widths = sorted(factor.shape[-1] for factor in key_factors)
    numbers_of_chunk = max(rank(key_factors), CHUNK * math.prod(widths[:-1]))  # a state, or copies of the values
    return v.shape[:-1].numel() / CHUNK * numbers_of_chunk * (v.shape[-1] + 1) <= MAX_AT_ONCE


def gram(query_factors: Factors, key_factors: Factors, v: ValueRows, *, guard: Guard, delta: float) -> AnswerRows:
    """Attend by the masked matrix [queries, length] of kernel values, which is fastest for short sequences."""
    values = kernel(query_factors, key_factors)
    return normalise(values.tril_(values.shape[-1] - values.shape[-2]) @ with_ones(v), guard, delta)


def chunked(query_factors: Factors, key_factors: Factors, v: ValueRows, *, guard: Guard, delta: float) -> ValueRows:
    """Attend chunk by chunk, in time linear in the length.

    A state, one matrix per head, is carried from chunk to chunk: a sum over the tokens of all earlier chunks.

    If the features are the tensor product of two factors, with widths m_a and m_b, the state has the shape [m_b, m_a
    (value_dim + 1)]. The tensor product itself, of width m_a m_b, is never formed.
    """
    query_a, query_b = as_two(tuple(map(widened, query_factors)))
    key_a, key_b = as_two(tuple(map(widened, key_factors)))
    values = with_ones(widened(v))
    sums = []
    state: Tensor | None = None
    # Split, not sliced: the gradient of a slice is as long as the whole, and there is one per chunk.
    chunks = zip(_split(query_a), _split(query_b), _split(key_a), _split(key_b), _split(values), strict=False)
    for number, (q_a, q_b, k_a, k_b, chunk) in enumerate(chunks, start=1):
        within = kernel(_without_none(q_b, q_a), _without_none(k_b, k_a)).tril_() @ chunk
        sums.append(within if state is None else within + contract(q_a, q_b @ state))
        if number * CHUNK < v.shape[-2]:
            update = k_b.mT @ expand(k_a, chunk)
            state = update if state is None else state + update
    return normalise(torch.cat(sums, dim=-2), guard, delta).to(v.dtype)


def at_once(query_factors: Factors, key_factors: Factors, v: ValueRows, *, guard: Guard, delta: float) -> ValueRows:
    """Attend in all chunks at the same time, not one by one as :func:`chunked` does; a cumulative sum gives all states.

    So the number of kernel launches does not grow with the length, but the states of all chunks are in memory at once.
    """
    query_a, query_b = map(_by_chunk, as_two(tuple(map(widened, query_factors))))
    key_a, key_b = map(_by_chunk, as_two(tuple(map(widened, key_factors))))
    values = _by_chunk(with_ones(widened(v)))
    within = kernel(_without_none(query_b, query_a), _without_none(key_b, key_a)).tril_() @ values
    sums = (key_b.mT @ expand(key_a, values)).cumsum(-3)
    before = pad(sums, (0, 0, 0, 0, 1, -1))  # the first chunk has none, and the last sum is read by none
    out = (within + contract(query_a, query_b @ before)).flatten(-3, -2)
    return normalise(out[..., : v.shape[-2], :], guard, delta).to(v.dtype)


def recurrent(query_factors: Factors, key_factors: Factors, v: ValueRows, *, guard: Guard, delta: float) -> ValueRows:
    """Attend one token at a time, as a decoder does. Tests compare the faster functions with this simple one."""
    state = initial_state(key_factors, v)
    outs = []
    queries, keys = (zip(*(factor.unbind(-2) for factor in of), strict=True) for of in (query_factors, key_factors))
    for query, key, value in zip(queries, keys, v.unbind(-2), strict=True):
        state, out = step(state, query, key, value, guard=guard, delta=delta)
        outs.append(out)
    return torch.stack(outs, dim=-2)


def initial_state(key_factors: Factors, v: ValueRows) -> Float[Tensor, "*batch features columns"]:
    """Return the state before the first token: zeros, [features, value_dim + 1] for every head."""
    return widened(v).new_zeros(*v.shape[:-2], rank(key_factors), v.shape[-1] + 1)


def step(
    state: Float[Tensor, "*batch features columns"],
    query_factors: Factors,
    key_factors: Factors,
    v: Float[Tensor, "*batch value_dim"],
    *,
    guard: Guard,
    delta: float,
) -> tuple[Float[Tensor, "*batch features columns"], Float[Tensor, "*batch value_dim"]]:
    """Add one token to the state; return the new state and the token's output.

    Each factor has the shape [..., width].
    """
    key, query = reduce(outer, key_factors), reduce(outer, query_factors)
    state = state + key.unsqueeze(-1) * with_ones(v).unsqueeze(-2)
    return state, normalise((query.unsqueeze(-1) * state).sum(-2), guard, delta).to(v.dtype)


def rank(factors: Factors) -> int:
    """Return the number of features, which is the product of the factors' widths."""
    return math.prod(factor.shape[-1] for factor in factors)


def normalise(sums: Float[Tensor, "*batch columns"], guard: Guard, delta: float) -> Float[Tensor, "*batch value_dim"]:
    """Divide the weighted sums of values by the sum of weights, which is the last column of ``sums``.

    :func:`guarded` keeps the denominator from 0.
    """
    # Split, not sliced: the gradients of two slices are each as wide as the whole, and are added.
    values, weights = sums.split([sums.shape[-1] - 1, 1], dim=-1)
    quotient: Tensor = values / guarded(weights, guard, delta)
    return quotient


def guarded(denominator: Tensor, guard: Guard, delta: float) -> Tensor:
    """Keep a denominator from 0: guard ``add`` adds ``delta``, and ``clamp`` raises it to at least ``delta``."""
    return denominator + delta if guard == "add" else denominator.clamp(min=delta)


def flattened(x: Tensor) -> Tensor:
    """Reshape [..., length, width] to [heads, length, width], with all leading axes merged into one."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def widened(x: Tensor) -> Tensor:
    """Convert a narrower dtype than float32 to float32.

    Sums need float32: in bfloat16, a sum of equal terms stops growing at 256 terms.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def with_ones(v: Tensor) -> Tensor:
    """Append to the values a column of ones, whose weighted sum is the denominator."""
    return pad(v, (0, 1), value=1.0)


def kernel(query_factors: Sequence[Tensor], key_factors: Sequence[Tensor]) -> Tensor:
    """Compute the kernel's value for every pair of a query and a key, [..., queries, keys].

    The value is a product with one term per factor of the features: the inner product of the query's factor and the
    key's factor.
    """
    grams = [query @ key.mT for query, key in zip(query_factors, key_factors, strict=True)]
    return reduce(torch.mul, grams)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return the flattened tensor product of two vectors, such as features and values, along the last axis."""
    return (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)


def as_two(factors: Factors) -> tuple[Tensor | None, Tensor]:
    """Merge all factors except the widest by a tensor product; return the merged factor and the widest factor.

    If there is only one factor, None takes the place of the merged factor.
    """
    *narrow, widest = sorted(factors, key=lambda factor: factor.shape[-1])
    return (reduce(outer, narrow) if narrow else None), widest


def _split(factor: Tensor | None) -> Iterable[Any]:
    """Split a factor into chunks along the length; if it is None, return an endless sequence of None."""
    return repeat(None) if factor is None else factor.split(CHUNK, dim=-2)


def _by_chunk(factor: Any) -> Any:
    """Cut [..., length, width] into [..., chunks, CHUNK, width], padded with zeros; None stays None."""
    if factor is None:
        return None
    missing = -factor.shape[-2] % CHUNK
    return (pad(factor, (0, 0, 0, missing)) if missing else factor).unflatten(-2, (-1, CHUNK))


def _without_none(last: Tensor, first: Tensor | None) -> Factors:
    return (last,) if first is None else (last, first)


def expand(scales: Tensor | None, values: Tensor) -> Tensor:
    """Concatenate one copy of the values per feature in ``scales``, multiplied by the feature.

    If ``scales`` is None, return the values unchanged.
    """
    return values if scales is None else outer(scales, values)


def contract(scales: Tensor | None, wide: Tensor) -> Tensor:
    """Cut ``wide`` into one part per feature in ``scales``, multiply each part by its feature, and sum the parts.

    The parts have equal width. If ``scales`` is None, return ``wide`` unchanged.
    """
    if scales is None:
        return wide
    copies: Tensor = wide.unflatten(-1, (scales.shape[-1], wide.shape[-1] // scales.shape[-1]))
    return (copies * scales.unsqueeze(-1)).sum(-2)
