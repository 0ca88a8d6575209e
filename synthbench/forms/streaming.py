"""Linear attention for long sequences: features are computed block by block, and again in the backward pass.

The result is the same as in :mod:`synthbench.forms.linear`. For the backward pass only q, k, v, the outputs, the
denominators and one state per block are kept, so the features of all tokens are never held at once.

Features are tensor products a ⊗ b. Let v' be the values with a column of ones, and S = Σ b(k_s) (a(k_s) ⊗ v'_s) the
state before a query. The query computes [num, den] = a(q) · (b(q)ᵀ S), and its output is num / N(den), where N keeps
the denominator from 0. Let g be the gradient of the loss with respect to [num, den]. The gradients of query features
follow from g and S, in the order of the sequence. The gradients of key features and values follow in reverse
order, from the sum of b(q_t) (a(q_t) ⊗ g_t) over later tokens. Blocks are cut into chunks, inside which all
gradients are products of masked Gram matrices.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthbench.forms.linear import (
    CHUNK,
    Factors,
    Guard,
    Side,
    as_two,
    flattened,
    guarded,
    normalise,
    widened,
    with_ones,
)
from synthbench.forms.shapes import KeyRows, ValueRows

BLOCK = 1024
"""Number of tokens whose features are held at once: a multiple of the chunk that fits the caches of a CPU core."""

FactorsOf = Callable[[Tensor, Side, int], Factors]
"""Function that computes the factors of features from queries or keys, the word ``query`` or ``key``, and the position
of the first row."""


class Pair(NamedTuple):
    """Features as the tensor product a ⊗ b; ``a`` is a column of ones if there is only one factor."""

    a: Tensor
    b: Tensor


def streamed(factors_of: FactorsOf, q: KeyRows, k: KeyRows, v: ValueRows, *, guard: Guard, delta: float) -> ValueRows:
    """Attend in time linear in the length, with the features of only one block of tokens in memory at a time.

    Args:
        factors_of: Function that computes the factors of the features. The backward pass calls it again and needs the
            same result. Its first argument (queries or keys) receives a gradient; parameters that it uses receive none.
        q: Queries.
        k: Keys.
        v: Values.
        guard: Way to keep a denominator from 0: ``add`` adds ``delta``, and ``clamp`` raises the denominator to at
            least ``delta``.
        delta: Number added to the denominator (``add``), or smallest denominator (``clamp``).
    """
    out: Tensor = _Streamed.apply(factors_of, guard, delta, q, k, v)  # type: ignore[no-untyped-call]
    return out


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, factors_of: FactorsOf, guard: Guard, delta: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        values = widened(flattened(v))
        out, denominators = values.new_empty(values.shape), values.new_empty(*values.shape[:-1], 1)
        states: list[Tensor] = []
        state: Tensor | None = None
        for rows in _blocks(v.shape[-2]):
            query = _features(factors_of, q[..., rows, :], "query", rows.start)
            key = _features(factors_of, k[..., rows, :], "key", rows.start)
            if state is None:
                state = values.new_zeros(len(values), key.b.shape[-1], key.a.shape[-1] * (v.shape[-1] + 1))
            if any(ctx.needs_input_grad):
                states.append(state.clone())
            sums = _read(query, key, with_ones(values[:, rows]), state)
            denominators[:, rows] = sums[..., -1:]
            out[:, rows] = normalise(sums, guard, delta)
        ctx.factors_of, ctx.guard, ctx.delta = factors_of, guard, delta
        ctx.save_for_backward(q, k, v, out, denominators, *states)
        return out.view(v.shape).to(v.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, denominators, *states = ctx.saved_tensors
        values, d_flat = widened(flattened(v)), widened(flattened(d_out))
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), values.new_empty(values.shape)
        later = torch.zeros_like(states[0])
        for rows, state in zip(reversed(list(_blocks(v.shape[-2]))), reversed(states), strict=True):
            with torch.enable_grad():
                q_rows, k_rows = (x[..., rows, :].detach().requires_grad_() for x in (q, k))
                made = (
                    *_features(ctx.factors_of, q_rows, "query", rows.start),
                    *_features(ctx.factors_of, k_rows, "key", rows.start),
                )
            q_a, q_b, k_a, k_b = (x.detach() for x in made)
            g = gradient_of_sums(ctx.guard, ctx.delta, d_flat[:, rows], out[:, rows], denominators[:, rows])
            # A copy: saved tensors may be read by a second backward pass.
            d_query, d_key, d_values = _gradients(
                Pair(q_a, q_b), Pair(k_a, k_b), with_ones(values[:, rows]), g, state.clone(), later
            )
            reached = [(x, d) for x, d in zip(made, (*d_query, *d_key), strict=True) if x.requires_grad]
            d_q[..., rows, :], d_k[..., rows, :] = torch.autograd.grad(
                [x for x, _ in reached], (q_rows, k_rows), [d for _, d in reached], materialize_grads=True
            )
            d_v[:, rows] = d_values[..., :-1]
        return None, None, None, d_q, d_k, d_v.view(v.shape).to(v.dtype)


def gradient_of_sums(guard: Guard, delta: float, d_out: Tensor, out: Tensor, denominators: Tensor) -> Tensor:
    """Compute the gradient with respect to [numerator, denominator] from the gradient with respect to the outputs."""
    divisors = guarded(denominators, guard, delta)
    d_denominators = -(d_out * out).sum(-1, keepdim=True) / divisors
    if guard == "clamp":
        d_denominators = d_denominators * (denominators >= delta)
    return torch.cat([d_out / divisors, d_denominators], dim=-1)


def _read(query: Pair, key: Pair, values: Tensor, state: Tensor) -> Tensor:
    """Compute weighted sums of values for a block's queries, chunk by chunk; add the block to ``state`` in place."""
    sums = torch.empty_like(values)
    space = _Workspace(query, values)
    for q_a, q_b, k_a, k_b, chunk, out in _chunks(*query, *key, values, sums):
        gram_a, gram_b, wide, copies = space.of(chunk)
        kernel = torch.bmm(q_a, k_a.mT, out=gram_a).mul_(torch.bmm(q_b, k_b.mT, out=gram_b)).tril_()
        torch.bmm(q_b, state, out=wide)
        torch.sum(copies.mul_(q_a.unsqueeze(-1)), dim=-2, out=out).baddbmm_(kernel, chunk)
        torch.mul(k_a.unsqueeze(-1), chunk.unsqueeze(-2), out=copies)
        state.baddbmm_(k_b.mT, wide)
    return sums


def _gradients(
    query: Pair, key: Pair, values: Tensor, g: Tensor, state: Tensor, later: Tensor
) -> tuple[Pair, Pair, Tensor]:
    """Compute the gradients of a block's features and values.

    ``state`` is the sum of b(k_s) (a(k_s) ⊗ v'_s) over the keys before the block. ``later`` is the sum of b(q_t)
    (a(q_t) ⊗ g_t) over the queries after the block. The block is added to both sums in place.
    """
    d_query, d_key = (Pair(*(torch.empty_like(x) for x in pair)) for pair in (query, key))
    d_values = torch.empty_like(values)
    space = _Workspace(query, values)
    chunks = list(_chunks(*query, *key, values, g, *d_query, *d_key, d_values))
    for q_a, q_b, k_a, k_b, chunk, g_chunk, d_q_a, d_q_b, d_k_a, d_k_b, d_chunk in chunks:
        gram_a, gram_b, wide, copies = space.of(chunk)
        torch.bmm(q_a, k_a.mT, out=gram_a)
        torch.bmm(q_b, k_b.mT, out=gram_b)
        d_kernel = torch.bmm(g_chunk, chunk.mT).tril_()
        d_gram_a = d_kernel * gram_b
        d_gram_b = d_kernel.mul_(gram_a)
        torch.bmm(gram_a.mul_(gram_b).tril_().mT, g_chunk, out=d_chunk)
        torch.bmm(d_gram_a.mT, q_a, out=d_k_a)
        torch.bmm(d_gram_b.mT, q_b, out=d_k_b)
        torch.bmm(q_b, state, out=wide)
        torch.sum(copies.mul_(g_chunk.unsqueeze(-2)), dim=-1, out=d_q_a).baddbmm_(d_gram_a, k_a)
        torch.mul(q_a.unsqueeze(-1), g_chunk.unsqueeze(-2), out=copies)
        torch.bmm(wide, state.mT, out=d_q_b).baddbmm_(d_gram_b, k_b)
        torch.mul(k_a.unsqueeze(-1), chunk.unsqueeze(-2), out=copies)
        state.baddbmm_(k_b.mT, wide)
    for q_a, q_b, k_a, k_b, chunk, g_chunk, _, _, d_k_a, d_k_b, d_chunk in reversed(chunks):
        *_, wide, copies = space.of(chunk)
        torch.mul(k_a.unsqueeze(-1), chunk.unsqueeze(-2), out=copies)
        d_k_b.baddbmm_(wide, later.mT)
        torch.bmm(k_b, later, out=wide)
        d_k_a.add_((copies * chunk.unsqueeze(-2)).sum(-1))
        d_chunk.add_(copies.mul_(k_a.unsqueeze(-1)).sum(-2))
        torch.mul(q_a.unsqueeze(-1), g_chunk.unsqueeze(-2), out=copies)
        later.baddbmm_(q_b.mT, wide)
    return d_query, d_key, d_values


class _Workspace:
    """Memory that all chunks reuse: for Gram matrices, and for copies of the values scaled by entries of factor a."""

    def __init__(self, pair: Pair, values: Tensor) -> None:
        self.a, columns = pair.a.shape[-1], values.shape[-1]
        size = min(CHUNK, values.shape[1])
        self.grams = values.new_empty(2, len(values), size, size)
        self.wide = values.new_empty(len(values), size, self.a * columns)

    def of(self, chunk: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return memory for two Gram matrices, and for the scaled copies of the values in ``chunk``.

        The memory for the copies is returned in two shapes: [heads, length, a x columns] and [heads, length, a,
        columns].
        """
        length = chunk.shape[1]
        gram_a, gram_b = self.grams[:, :, :length, :length]
        wide = self.wide[:, :length]
        return gram_a, gram_b, wide, wide.unflatten(-1, (self.a, chunk.shape[-1]))


def _features(factors_of: FactorsOf, x: Tensor, side: Side, first_position: int) -> Pair:
    """Compute a block's features, with leading axes merged into one, and all factors except the widest merged."""
    merged, widest = as_two(factors_of(x, side, first_position))
    if merged is None:
        merged = widest.new_ones(widest.shape[-2], 1)
    # A factor that the whole batch shares is expanded.
    spread = (factor.expand(*x.shape[:-2], *factor.shape[-2:]) for factor in (merged, widest))
    return Pair(*(widened(flattened(factor)) for factor in spread))


def _blocks(length: int) -> Iterator[slice]:
    for start in range(0, length, BLOCK):
        yield slice(start, min(start + BLOCK, length))


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield, for each chunk of tokens, views of its rows in all tensors."""
    return zip(*(tensor.split(CHUNK, dim=1) for tensor in tensors), strict=True)
