"""Linear attention by given features, of one factor: the function of :mod:`synthbench.forms.linear`.

Up to a crossing length one launch works on tiles of masked scores and keeps no state. Beyond it the sequence is cut
into segments. One launch sums each segment's keys and values, and a cumulative sum carries the states on. The same
output kernel starts a query from the state before its segment.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl

from synthbench.forms.kernels._tiles import (
    ROWS,
    VARYING,
    by_head,
    guarded,
    head_and_row,
    is_past,
    load_column,
    load_tile,
    num_tiles,
    padded,
    precision,
    product,
    segment_length,
    step,
    store_column,
    store_tile,
)
from synthbench.forms.linear import Factors, Guard
from synthbench.forms.shapes import ValueRows


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def state_kernel(
    k_ptr, v_ptr, state_ptr, total_ptr, length, segment, num_features: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, features: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Sum a segment's k vᵀ and k; every segment that comes here is full."""
    head, index = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k_ptr += head * length * num_features
    v_ptr += head * length * value_dim
    state = tl.zeros((features, columns), dtype=tl.float32)
    total = tl.zeros((features,), dtype=tl.float32)
    for first in range(index * segment, (index + 1) * segment, rows):
        k = load_tile(k_ptr, first, length, num_features, rows, features, may_end=False)
        v = load_tile(v_ptr, first, length, value_dim, rows, columns, may_end=False)
        state += product(tl.trans(k), v, precision)
        total += tl.sum(k, axis=0)
    place = head * tl.num_programs(1) + index
    store_tile(
        state_ptr + place * num_features * value_dim, state, 0, num_features, value_dim, features, columns
    )  # fmt: skip
    store_column(total_ptr + place * num_features, total, 0, num_features, features)


@triton.jit
@no_type_check
def add_keys(
    sums, totals, q, k_ptr, v_ptr, first, start, length, num_features: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, features: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
    is_diagonal: tl.constexpr,
):  # fmt: skip
    """Add a tile of keys to the weighted values and the sums of weights of a tile of queries."""
    k = load_tile(k_ptr, start, length, num_features, step, features, may_end=is_diagonal)
    v = load_tile(v_ptr, start, length, value_dim, step, columns, may_end=is_diagonal)
    scores = product(q, tl.trans(k), precision)
    if is_diagonal:
        scores = tl.where(is_past(first, start, rows, step), scores, 0.0)
    return sums + product(scores, v, precision), totals + tl.sum(scores, axis=1)


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def output_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, state_ptr, total_ptr, length, segment, num_states, delta,
    num_features: tl.constexpr, value_dim: tl.constexpr, is_clamped: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, features: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Outputs of a tile of queries: the state before their segment, then tiles of scores inside it."""
    head, first = head_and_row(length, rows, is_key=False)
    index = first // segment
    k_ptr += head * length * num_features
    v_ptr += head * length * value_dim
    q = load_tile(q_ptr + head * length * num_features, first, length, num_features, rows, features)
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    totals = tl.zeros((rows,), dtype=tl.float32)
    if index > 0:
        place = head * num_states + index - 1
        state = load_tile(
            state_ptr + place * num_features * value_dim, 0, num_features, value_dim, features, columns
        )  # fmt: skip
        total = load_column(total_ptr + place * num_features, 0, num_features, features)
        sums += product(q, state, precision)
        totals += tl.sum(q * total[None, :], axis=1)
    for start in range(index * segment, first, step):
        sums, totals = add_keys(
            sums, totals, q, k_ptr, v_ptr, first, start, length, num_features, value_dim,
            rows, step, features, columns, precision, is_diagonal=False,
        )  # fmt: skip
    for start in range(first, first + rows, step):
        sums, totals = add_keys(
            sums, totals, q, k_ptr, v_ptr, first, start, length, num_features, value_dim,
            rows, step, features, columns, precision, is_diagonal=True,
        )  # fmt: skip
    out = sums / guarded(totals, delta, is_clamped)[:, None]
    store_tile(out_ptr + head * length * value_dim, out, first, length, value_dim, rows, columns)


def forward(
    query_factors: Factors,
    key_factors: Factors,
    v: ValueRows,
    *,
    guard: Guard,
    delta: float,
    segment: int | None = None,
) -> ValueRows:
    """Attend by one factor; no gradient passes. A segment of fewer tokens than the length is whole tiles."""
    (query,), (key,) = query_factors, key_factors
    length, num_features, value_dim = v.shape[-2], key.shape[-1], v.shape[-1]
    q, k, values = (by_head(x.expand(*v.shape[:-1], -1)) for x in (query, key, v))
    heads, out = len(q), torch.empty_like(values)
    segment = segment or segment_length(num_features, value_dim, num_features)
    num_states = num_tiles(length, segment) - 1
    shape = heads, num_states, num_features
    states, totals = (q.new_empty(*shape, *of, dtype=torch.float32) for of in ((value_dim,), ()))
    widths = {
        "num_features": num_features,
        "value_dim": value_dim,
        "rows": ROWS,
        "features": padded(num_features),
        "columns": padded(value_dim),
        "precision": precision(v.dtype),
    }
    with torch.cuda.device_of(q):
        if num_states:
            state_kernel[heads, num_states](k, values, states, totals, length, segment, **widths)
            states, totals = states.cumsum_(1), totals.cumsum_(1)
        output_kernel[(heads * num_tiles(length),)](
            q, k, values, out, states, totals, length, segment, num_states, delta,
            is_clamped=guard == "clamp", step=step(precision(v.dtype)), **widths,
        )  # fmt: skip
    return out.view(v.shape)
