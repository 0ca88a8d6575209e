"""Attention by the exact spherical Yat kernel over its sum, tile by tile, forward and backward.

Weights are values over their sum, so that a tile needs no maximum and nothing is scaled again; T x T never exists. With
C = 2 + epsilon and x the cosine of a query and a key, the kernel is K = x² / (C - 2x) and its slope 2x / (C - 2x) +
2 K / (C - 2x). From g = [d_out, -(d_out · out)] / (ΣK + delta) the gradient of a kernel value is g · [v, 1].
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthbench.mechanisms._scores import SUM_DELTA
from synthbench.mechanisms.kernels._tiles import (
    ROWS,
    by_head,
    is_past,
    load_tile,
    norms_of,
    num_tiles,
    padded,
    precision,
    store_tile,
    through_norm,
)


@triton.jit
@no_type_check
def gaps_of(cosines, constant):
    """C - 2x, which rounding could bring to zero."""
    return tl.maximum(constant - 2 * cosines, 1e-6)


@triton.jit
@no_type_check
def slopes_of(cosines, constant):
    """dK/dx; where the gap is held at its smallest value only the numerator moves."""
    gaps = gaps_of(cosines, constant)
    ratios = cosines / gaps
    return 2 * ratios + tl.where(constant - 2 * cosines >= 1e-6, 2 * ratios * ratios, 0.0)


@triton.jit
@no_type_check
def output_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, total_ptr, length, key_dim, value_dim, constant, delta,
    rows: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Outputs and sums of weights of a tile of queries."""
    head, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * rows
    q = load_tile(q_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    unit = q / norms_of(q)[:, None]
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    totals = tl.zeros((rows,), dtype=tl.float32)
    for start in range(0, first + rows, rows):
        k = load_tile(k_ptr + head * length * key_dim, start, length, key_dim, rows, dims)
        v = load_tile(v_ptr + head * length * value_dim, start, length, value_dim, rows, columns)
        cosines = tl.dot(unit, tl.trans(k / norms_of(k)[:, None]), input_precision=precision)
        kernel = tl.where(is_past(first, start, rows), cosines * cosines / gaps_of(cosines, constant), 0.0)
        sums += tl.dot(kernel, v, input_precision=precision)
        totals += tl.sum(kernel, axis=1)
    totals += delta
    store_tile(
        out_ptr + head * length * value_dim, sums / totals[:, None], first, length, value_dim, rows, columns
    )  # fmt: skip
    row = first + tl.arange(0, rows)
    tl.store(total_ptr + head * length + row, totals, mask=row < length)


@triton.jit
@no_type_check
def query_gradient_kernel(
    q_ptr, k_ptr, v_ptr, g_ptr, g_total_ptr, d_q_ptr, length, key_dim, value_dim, constant,
    rows: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of queries, over the keys before them."""
    head, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * rows
    q = load_tile(q_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    g = load_tile(g_ptr + head * length * value_dim, first, length, value_dim, rows, columns)
    row = first + tl.arange(0, rows)
    g_total = tl.load(g_total_ptr + head * length + row, mask=row < length, other=0.0)
    norms = norms_of(q)
    unit = q / norms[:, None]
    d_unit = tl.zeros((rows, dims), dtype=tl.float32)
    for start in range(0, first + rows, rows):
        k = load_tile(k_ptr + head * length * key_dim, start, length, key_dim, rows, dims)
        v = load_tile(v_ptr + head * length * value_dim, start, length, value_dim, rows, columns)
        unit_k = k / norms_of(k)[:, None]
        cosines = tl.dot(unit, tl.trans(unit_k), input_precision=precision)
        d_kernel = tl.dot(g, tl.trans(v), input_precision=precision) + g_total[:, None]
        d_cosines = tl.where(is_past(first, start, rows), d_kernel * slopes_of(cosines, constant), 0.0)
        d_unit += tl.dot(d_cosines, unit_k, input_precision=precision)
    d_q = through_norm(d_unit, unit, norms)
    store_tile(d_q_ptr + head * length * key_dim, d_q, first, length, key_dim, rows, dims)


@triton.jit
@no_type_check
def key_gradient_kernel(
    q_ptr, k_ptr, v_ptr, g_ptr, g_total_ptr, d_k_ptr, d_v_ptr, length, key_dim, value_dim, constant,
    rows: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys and their values, over the queries after them."""
    head, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * rows
    k = load_tile(k_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    v = load_tile(v_ptr + head * length * value_dim, first, length, value_dim, rows, columns)
    norms = norms_of(k)
    unit = k / norms[:, None]
    d_unit = tl.zeros((rows, dims), dtype=tl.float32)
    d_v = tl.zeros((rows, columns), dtype=tl.float32)
    for start in range(first, length, rows):
        q = load_tile(q_ptr + head * length * key_dim, start, length, key_dim, rows, dims)
        g = load_tile(g_ptr + head * length * value_dim, start, length, value_dim, rows, columns)
        row = start + tl.arange(0, rows)
        g_total = tl.load(g_total_ptr + head * length + row, mask=row < length, other=0.0)
        unit_q = q / norms_of(q)[:, None]
        may_attend = is_past(start, first, rows)
        cosines = tl.dot(unit_q, tl.trans(unit), input_precision=precision)
        kernel = tl.where(may_attend, cosines * cosines / gaps_of(cosines, constant), 0.0)
        d_v += tl.dot(tl.trans(kernel), g, input_precision=precision)
        d_kernel = tl.dot(g, tl.trans(v), input_precision=precision) + g_total[:, None]
        d_cosines = tl.where(may_attend, d_kernel * slopes_of(cosines, constant), 0.0)
        d_unit += tl.dot(tl.trans(d_cosines), unit_q, input_precision=precision)
    d_k = through_norm(d_unit, unit, norms)
    store_tile(d_k_ptr + head * length * key_dim, d_k, first, length, key_dim, rows, dims)
    store_tile(d_v_ptr + head * length * value_dim, d_v, first, length, value_dim, rows, columns)


def attend(
    epsilon: float,
    q: Float[Tensor, "*batch length key_dim"],
    k: Float[Tensor, "*batch length key_dim"],
    v: Float[Tensor, "*batch length value_dim"],
) -> Float[Tensor, "*batch length value_dim"]:
    """Attend; gradients of the first order pass."""
    out: Tensor = _Attend.apply(epsilon, q, k, v)  # type: ignore[no-untyped-call]
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, epsilon: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys, values = by_head(q), by_head(k), by_head(v)
        out, totals = torch.empty_like(values), values.new_empty(values.shape[:-1], dtype=torch.float32)
        with torch.cuda.device_of(q):
            output_kernel[len(queries), num_tiles(q.shape[-2])](
                queries, keys, values, out, totals, *_sizes(q, v), 2 + epsilon, SUM_DELTA, **_widths(q, v)
            )
        ctx.epsilon = epsilon
        ctx.save_for_backward(q, k, v, out, totals)
        return out.view(v.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        q, k, v, out, totals = ctx.saved_tensors
        queries, keys, values, d_out = by_head(q), by_head(k), by_head(v), by_head(d_out)
        g = d_out.float() / totals.unsqueeze(-1)
        g_total = -(g * out).sum(-1)
        d_q, d_k, d_v = torch.empty_like(queries), torch.empty_like(keys), torch.empty_like(values)
        arguments = queries, keys, values, g, g_total
        grid = len(queries), num_tiles(q.shape[-2])
        with torch.cuda.device_of(q):
            query_gradient_kernel[grid](*arguments, d_q, *_sizes(q, v), 2 + ctx.epsilon, **_widths(q, v))
            key_gradient_kernel[grid](*arguments, d_k, d_v, *_sizes(q, v), 2 + ctx.epsilon, **_widths(q, v))
        return None, d_q.view(q.shape), d_k.view(k.shape), d_v.view(v.shape)


def _sizes(q: Tensor, v: Tensor) -> tuple[int, int, int]:
    return q.shape[-2], q.shape[-1], v.shape[-1]


def _widths(q: Tensor, v: Tensor) -> dict[str, Any]:
    return {"rows": ROWS, "dims": padded(q.shape[-1]), "columns": padded(v.shape[-1]), "precision": precision(q.dtype)}
