"""Attention by the exact spherical Yat kernel, tile by tile, without any length x length matrix.

Weights are kernel values divided by their sum. Unlike in a softmax, no maximum is needed, and nothing is rescaled from
tile to tile. Let C = 2 + epsilon and x be the cosine of a query and a key. The kernel is K = x² / (C - 2x), with the
derivative 2x / (C - 2x) + 2 K / (C - 2x). With g = [d_out, -(d_out · out)] / (ΣK + delta), the gradient with respect to
a kernel value is g · [v, 1].

PyTorch computes the unit vectors before the kernels run, so that no tile has to compute them again.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.kernels._tiles import (
    ROWS,
    VARYING,
    by_head,
    head_and_row,
    is_past,
    load_column,
    load_tile,
    num_tiles,
    padded,
    precision,
    product,
    step,
    store_column,
    store_tile,
)
from synthbench.forms.linear import widened
from synthbench.forms.scores import SUM_DELTA
from synthbench.forms.shapes import KeyRows, ValueRows


@triton.jit
@no_type_check
def cosines_of(q, k, precision: tl.constexpr):
    """Compute the cosines x of unit vectors, never in bfloat16.

    The rounding error of bfloat16 would be as large as the smallest value of C - 2x, the denominator of the kernel.
    """
    return product(q, tl.trans(k), "tf32" if precision == "bf16" else precision)


@triton.jit
@no_type_check
def roots_of(cosines, constant):
    """Compute 1 / √max(C - 2x, 1e-6) for cosines x; without the limit, rounding could make C - 2x zero."""
    return tl.rsqrt(tl.maximum(constant - 2 * cosines, 1e-6))


@triton.jit
@no_type_check
def ratios_of(cosines, constant):
    """Compute x / max(C - 2x, 1e-6) for cosines x."""
    roots = roots_of(cosines, constant)
    return cosines * (roots * roots)


@triton.jit
@no_type_check
def slopes_of(cosines, ratios, constant):
    """Compute the derivative dK/dx of the kernel K = x² / max(C - 2x, 1e-6).

    Where the denominator is held at 1e-6, only the numerator of K depends on x.
    """
    return 2 * ratios + tl.where(constant - 2 * cosines >= 1e-6, 2 * ratios * ratios, 0.0)


@triton.jit
@no_type_check
def add_keys(
    sums, totals, q, k_ptr, v_ptr, first, start, length, constant, key_dim: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
    is_diagonal: tl.constexpr,
):  # fmt: skip
    """Add the contribution of a tile of keys to a tile of queries: to its sums of weighted values and of weights."""
    k = load_tile(k_ptr, start, length, key_dim, step, dims, may_end=is_diagonal)
    v = load_tile(v_ptr, start, length, value_dim, step, columns, may_end=is_diagonal)
    cosines = cosines_of(q, k, precision)
    scaled = cosines * roots_of(cosines, constant)
    weights = scaled * scaled
    if is_diagonal:
        weights = tl.where(is_past(first, start, rows, step), weights, 0.0)
    return sums + product(weights, v, precision), totals + tl.sum(weights, axis=1)


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def output_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, total_ptr, length, constant, delta, key_dim: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Compute the outputs of a tile of queries, and each query's sum of weights."""
    head, first = head_and_row(length, rows, is_key=False)
    k_ptr += head * length * key_dim
    v_ptr += head * length * value_dim
    q = load_tile(q_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    totals = tl.zeros((rows,), dtype=tl.float32)
    for start in range(0, first, step):
        sums, totals = add_keys(
            sums, totals, q, k_ptr, v_ptr, first, start, length, constant, key_dim, value_dim,
            rows, step, dims, columns, precision, is_diagonal=False,
        )  # fmt: skip
    for start in range(first, first + rows, step):
        sums, totals = add_keys(
            sums, totals, q, k_ptr, v_ptr, first, start, length, constant, key_dim, value_dim,
            rows, step, dims, columns, precision, is_diagonal=True,
        )  # fmt: skip
    totals += delta
    store_tile(
        out_ptr + head * length * value_dim, sums / totals[:, None], first, length, value_dim, rows, columns
    )  # fmt: skip
    store_column(total_ptr + head * length, totals, first, length, rows)


@triton.jit
@no_type_check
def add_gradient_of_queries(
    d_q, q, g, g_total, k_ptr, v_ptr, first, start, length, constant, key_dim: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
    is_diagonal: tl.constexpr,
):  # fmt: skip
    """Add the contribution of a tile of keys to the gradient of a tile of queries."""
    k = load_tile(k_ptr, start, length, key_dim, step, dims, may_end=is_diagonal)
    v = load_tile(v_ptr, start, length, value_dim, step, columns, may_end=is_diagonal)
    cosines = cosines_of(q, k, precision)
    d_values = product(g, tl.trans(v), precision) + g_total[:, None]
    d_cosines = d_values * slopes_of(cosines, ratios_of(cosines, constant), constant)
    if is_diagonal:
        d_cosines = tl.where(is_past(first, start, rows, step), d_cosines, 0.0)
    return d_q + product(d_cosines, k, precision)


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def query_gradient_kernel(
    q_ptr, k_ptr, v_ptr, g_ptr, g_total_ptr, d_q_ptr, length, constant, key_dim: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a tile of queries, from all keys at or before each query."""
    head, first = head_and_row(length, rows, is_key=False)
    k_ptr += head * length * key_dim
    v_ptr += head * length * value_dim
    q = load_tile(q_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    g = load_tile(g_ptr + head * length * value_dim, first, length, value_dim, rows, columns)
    g_total = load_column(g_total_ptr + head * length, first, length, rows)
    d_q = tl.zeros((rows, dims), dtype=tl.float32)
    for start in range(0, first, step):
        d_q = add_gradient_of_queries(
            d_q, q, g, g_total, k_ptr, v_ptr, first, start, length, constant, key_dim, value_dim,
            rows, step, dims, columns, precision, is_diagonal=False,
        )  # fmt: skip
    for start in range(first, first + rows, step):
        d_q = add_gradient_of_queries(
            d_q, q, g, g_total, k_ptr, v_ptr, first, start, length, constant, key_dim, value_dim,
            rows, step, dims, columns, precision, is_diagonal=True,
        )  # fmt: skip
    store_tile(d_q_ptr + head * length * key_dim, d_q, first, length, key_dim, rows, dims)


@triton.jit
@no_type_check
def add_gradients_of_keys(
    d_k, d_v, k, v, q_ptr, g_ptr, g_total_ptr, first, start, length, constant,
    key_dim: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
    is_diagonal: tl.constexpr,
):  # fmt: skip
    """Add the contribution of a tile of queries to the gradients of a tile of keys and their values."""
    q = load_tile(q_ptr, start, length, key_dim, step, dims)
    g = load_tile(g_ptr, start, length, value_dim, step, columns)
    g_total = load_column(g_total_ptr, start, length, step)
    cosines = cosines_of(q, k, precision)
    ratios = ratios_of(cosines, constant)
    weights = cosines * ratios
    d_values = product(g, tl.trans(v), precision) + g_total[:, None]
    d_cosines = d_values * slopes_of(cosines, ratios, constant)
    if is_diagonal:
        may_attend = is_past(start, first, step, rows)
        weights, d_cosines = tl.where(may_attend, weights, 0.0), tl.where(may_attend, d_cosines, 0.0)
    d_v += product(tl.trans(weights), g, precision)
    d_k += product(tl.trans(d_cosines), q, precision)
    return d_k, d_v


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def key_gradient_kernel(
    q_ptr, k_ptr, v_ptr, g_ptr, g_total_ptr, d_k_ptr, d_v_ptr, length, constant,
    key_dim: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a tile of keys and their values, from all queries at or after each key."""
    head, first = head_and_row(length, rows, is_key=True)
    q_ptr += head * length * key_dim
    g_ptr += head * length * value_dim
    g_total_ptr += head * length
    k = load_tile(k_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    v = load_tile(v_ptr + head * length * value_dim, first, length, value_dim, rows, columns)
    d_k = tl.zeros((rows, dims), dtype=tl.float32)
    d_v = tl.zeros((rows, columns), dtype=tl.float32)
    for start in range(first, first + rows, step):
        d_k, d_v = add_gradients_of_keys(
            d_k, d_v, k, v, q_ptr, g_ptr, g_total_ptr, first, start, length, constant, key_dim, value_dim,
            rows, step, dims, columns, precision, is_diagonal=True,
        )  # fmt: skip
    for start in range(first + rows, length, step):
        d_k, d_v = add_gradients_of_keys(
            d_k, d_v, k, v, q_ptr, g_ptr, g_total_ptr, first, start, length, constant, key_dim, value_dim,
            rows, step, dims, columns, precision, is_diagonal=False,
        )  # fmt: skip
    store_tile(d_k_ptr + head * length * key_dim, d_k, first, length, key_dim, rows, dims)
    store_tile(d_v_ptr + head * length * value_dim, d_v, first, length, value_dim, rows, columns)


def attend(epsilon: float, q: KeyRows, k: KeyRows, v: ValueRows) -> ValueRows:
    """Attend by the spherical Yat kernel; q, k and v receive gradients of the first order only."""
    queries, keys = (unit_vectors(by_head(widened(x))) for x in (q, k))
    out: Tensor = _Attend.apply(epsilon, queries, keys, by_head(v))  # type: ignore[no-untyped-call]
    return out.view(v.shape)


class _Attend(torch.autograd.Function):
    """Attention for float32 unit vectors q and k and values of any dtype, each contiguous [heads, length, width]."""

    @staticmethod
    def forward(ctx: Any, epsilon: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, totals = torch.empty_like(v), q.new_empty(q.shape[:-1])
        with torch.cuda.device_of(q):
            output_kernel[_grid(q)](q, k, v, out, totals, q.shape[1], 2 + epsilon, SUM_DELTA, **_widths(q, v))
        ctx.epsilon = epsilon
        ctx.save_for_backward(q, k, v, out, totals)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        q, k, v, out, totals = ctx.saved_tensors
        g = by_head(widened(d_out) / totals.unsqueeze(-1))
        g_total = -(g * out).sum(-1)
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        numbers = q.shape[1], 2 + ctx.epsilon
        with torch.cuda.device_of(q):
            query_gradient_kernel[_grid(q)](q, k, v, g, g_total, d_q, *numbers, **_widths(q, v))
            key_gradient_kernel[_grid(q)](q, k, v, g, g_total, d_k, d_v, *numbers, **_widths(q, v))
        return None, d_q, d_k, d_v


def _grid(q: Tensor) -> tuple[int]:
    return (len(q) * num_tiles(q.shape[1]),)


def _widths(q: Tensor, v: Tensor) -> dict[str, Any]:
    return {
        "key_dim": q.shape[-1],
        "value_dim": v.shape[-1],
        "rows": ROWS,
        "dims": padded(q.shape[-1]),
        "columns": padded(v.shape[-1]),
        "step": step(precision(v.dtype)),
        "precision": precision(v.dtype),
    }
