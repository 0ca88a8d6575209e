"""Attention by features for long sequences: features are made block by block, and again in the backward pass.

The function is that of :mod:`synthbench.mechanisms._linear`. What is kept from forward to backward is q, k, v, the
outputs, the denominators and one state a block, so that memory does not grow with features x length.

With v' the values beside a column of ones, and S = Σ b(k_s) (a(k_s) ⊗ v'_s) the state of what came before, a query
reads [num, den] = a(q) · (b(q)ᵀ S), and its output is num / N(den). A gradient g of [num, den] reaches the queries'
features in the order of the sequence, with S, and the keys' features and the values in the opposite order, with the sum
of b(q_t) (a(q_t) ⊗ g_t) over what comes later. Inside a chunk both are products of masked Gram matrices.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthbench.mechanisms._linear import CHUNK, Factors, Guard, contract, expand, normalise, outer, with_ones

BLOCK = 1024
"""Tokens whose features exist at a time: a multiple of the chunk that fits the caches of a CPU core."""

Side = Literal["query", "key"]
FactorsOf = Callable[[Tensor, Side, int], Factors]
"""Factors of the features of some rows, of which the first stands at a position."""


class Pair(NamedTuple):
    """Features as a ⊗ b; ``a`` is a column of ones where there is only one factor."""

    a: Tensor
    b: Tensor


def streamed(
    factors_of: FactorsOf,
    q: Float[Tensor, "*batch length key_dim"],
    k: Float[Tensor, "*batch length key_dim"],
    v: Float[Tensor, "*batch length value_dim"],
    *,
    guard: Guard,
    delta: float,
) -> Float[Tensor, "*batch length value_dim"]:
    """Attend in time linear in the length, with memory for one block of features.

    Args:
        factors_of: Makes the features. It is called again in the backward pass and must give the same then, and nothing
            that it reads gets a gradient but its first argument.
        q: Queries.
        k: Keys.
        v: Values.
        guard: How a small denominator is kept from 0.
        delta: The smallest denominator, or what is added to it.
    """
    out: Tensor = _Streamed.apply(factors_of, guard, delta, q, k, v)  # type: ignore[no-untyped-call]
    return out


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, factors_of: FactorsOf, guard: Guard, delta: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, denominators, states = torch.empty_like(v), v.new_empty(*v.shape[:-1], 1), []
        state: Tensor | None = None
        for rows in _blocks(v.shape[-2]):
            query = _features(factors_of, q[..., rows, :], "query", rows)
            key = _features(factors_of, k[..., rows, :], "key", rows)
            if state is None:
                state = _empty_state(key, v)
            states.append(state.clone())
            sums = _read(query, key, with_ones(v[..., rows, :]), state)
            denominators[..., rows, :] = sums[..., -1:]
            out[..., rows, :] = normalise(sums, guard, delta)
        ctx.factors_of, ctx.guard, ctx.delta = factors_of, guard, delta
        ctx.save_for_backward(q, k, v, out, denominators, *states)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, denominators, *states = ctx.saved_tensors
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        later = torch.zeros_like(states[0])
        for rows, state in zip(reversed(list(_blocks(v.shape[-2]))), reversed(states), strict=True):
            with torch.enable_grad():
                q_rows, k_rows = (x[..., rows, :].detach().requires_grad_() for x in (q, k))
                made = (
                    *_features(ctx.factors_of, q_rows, "query", rows),
                    *_features(ctx.factors_of, k_rows, "key", rows),
                )
            q_a, q_b, k_a, k_b = (x.detach() for x in made)
            g = gradient_of_sums(
                ctx.guard, ctx.delta, d_out[..., rows, :], out[..., rows, :], denominators[..., rows, :]
            )
            # A copy: saved tensors may be read by a second backward pass.
            d_query, d_key, d_values = _gradients(
                Pair(q_a, q_b), Pair(k_a, k_b), with_ones(v[..., rows, :]), g, state.clone(), later
            )
            reached = [(x, d) for x, d in zip(made, (*d_query, *d_key), strict=True) if x.requires_grad]
            d_q[..., rows, :], d_k[..., rows, :] = torch.autograd.grad(
                [x for x, _ in reached], (q_rows, k_rows), [d for _, d in reached], materialize_grads=True
            )
            d_v[..., rows, :] = d_values[..., :-1]
        return None, None, None, d_q, d_k, d_v


def gradient_of_sums(guard: Guard, delta: float, d_out: Tensor, out: Tensor, denominators: Tensor) -> Tensor:
    """From the gradient of the outputs to that of [numerator, denominator]."""
    divisors = denominators + delta if guard == "add" else denominators.clamp(min=delta)
    d_denominators = -(d_out * out).sum(-1, keepdim=True) / divisors
    if guard == "clamp":
        d_denominators = d_denominators * (denominators >= delta)
    return torch.cat([d_out / divisors, d_denominators], dim=-1)


def _read(query: Pair, key: Pair, values: Tensor, state: Tensor) -> Tensor:
    """Weighted sums of the values of a block, chunk by chunk; the state is brought to the block's end in place."""
    sums = torch.empty(*query.b.shape[:-1], values.shape[-1], dtype=values.dtype, device=values.device)
    for rows in _chunks(values.shape[-2]):
        (q_a, q_b), (k_a, k_b), chunk = _rows(query, rows), _rows(key, rows), values[..., rows, :]
        kernel = ((q_a @ k_a.mT).mul_(q_b @ k_b.mT)).tril_()
        sums[..., rows, :] = contract(q_a, q_b @ state).add_(kernel @ chunk)
        state.add_(k_b.mT @ expand(k_a, chunk))
    return sums


def _gradients(
    query: Pair, key: Pair, values: Tensor, g: Tensor, state: Tensor, later: Tensor
) -> tuple[Pair, Pair, Tensor]:
    """Gradients of a block's features and values.

    ``state`` is what lies before the block, ``later`` the sum over the queries after it; both are moved over the block.
    """
    d_query, d_key = (Pair(*(torch.empty_like(x) for x in pair)) for pair in (query, key))
    d_values = torch.empty_like(values)
    for rows in _chunks(values.shape[-2]):
        (q_a, q_b), (k_a, k_b), chunk, g_chunk = (
            _rows(query, rows),
            _rows(key, rows),
            values[..., rows, :],
            g[..., rows, :],
        )
        gram_a, gram_b = q_a @ k_a.mT, q_b @ k_b.mT
        d_kernel = (g_chunk @ chunk.mT).tril_()
        d_gram_a, d_gram_b = d_kernel * gram_b, d_kernel * gram_a
        d_query.a[..., rows, :] = (d_gram_a @ k_a).add_(_inner(q_b @ state, g_chunk))
        d_query.b[..., rows, :] = (d_gram_b @ k_b).add_(expand(q_a, g_chunk) @ state.mT)
        d_key.a[..., rows, :] = d_gram_a.mT @ q_a
        d_key.b[..., rows, :] = d_gram_b.mT @ q_b
        d_values[..., rows, :] = gram_a.mul_(gram_b).tril_().mT @ g_chunk
        state.add_(k_b.mT @ expand(k_a, chunk))
    for rows in reversed(list(_chunks(values.shape[-2]))):
        (q_a, q_b), (k_a, k_b), chunk, g_chunk = (
            _rows(query, rows),
            _rows(key, rows),
            values[..., rows, :],
            g[..., rows, :],
        )
        wide = k_b @ later
        d_key.a[..., rows, :] += _inner(wide, chunk)
        d_key.b[..., rows, :] += expand(k_a, chunk) @ later.mT
        d_values[..., rows, :] += contract(k_a, wide)
        later.add_(q_b.mT @ expand(q_a, g_chunk))
    return d_query, d_key, d_values


def _inner(wide: Tensor, columns: Tensor) -> Tensor:
    """From [..., width of a x columns] to the inner products with the columns, one for each feature of a."""
    copies: Tensor = wide.unflatten(-1, (wide.shape[-1] // columns.shape[-1], columns.shape[-1]))
    return (copies @ columns.unsqueeze(-1)).squeeze(-1)


def _features(factors_of: FactorsOf, x: Tensor, side: Side, rows: slice) -> Pair:
    """Features of the rows of a block; all factors but the widest are merged, one that a batch shares is spread."""
    *narrow, widest = sorted(factors_of(x, side, rows.start), key=lambda factor: factor.shape[-1])
    merged = reduce(outer, narrow) if narrow else widest.new_ones(widest.shape[-2], 1)
    return Pair(*(factor.expand(*x.shape[:-1], -1) for factor in (merged, widest)))


def _empty_state(key: Pair, v: Tensor) -> Tensor:
    return v.new_zeros(*v.shape[:-2], key.b.shape[-1], key.a.shape[-1] * (v.shape[-1] + 1))


def _rows(pair: Pair, rows: slice) -> Pair:
    return Pair(pair.a[..., rows, :], pair.b[..., rows, :])


def _blocks(length: int) -> Iterator[slice]:
    for start in range(0, length, BLOCK):
        yield slice(start, min(start + BLOCK, length))


def _chunks(length: int) -> Iterator[slice]:
    for start in range(0, length, CHUNK):
        yield slice(start, min(start + CHUNK, length))
