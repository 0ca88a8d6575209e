"""SLAY with features made on chip: the function that ``slay`` computes by its two factors, which reach no memory.

With unit vectors û, a key or a query has the factors a = (û · anchors)² and b = exp(û · directions - shift +
log_scale), and a score is ⟨a, a'⟩⟨b, b'⟩: two small products a tile, never one as wide as a ⊗ b. Up to a crossing
length there are only tiles of scores. Beyond it one launch makes the states of segments, an own matrix b aₚ vᵀ for
every anchor p, so that nothing as wide as a ⊗ v is formed either; a cumulative sum carries them on, and the output
kernel starts a query from the state before its segment.
"""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from synthbench.mechanisms._linear import Guard
from synthbench.mechanisms.kernels._tiles import (
    ROWS,
    by_head,
    guarded,
    load_tile,
    norms_of,
    num_tiles,
    padded,
    precision,
    segment_length,
    store_tile,
)


class Constants(NamedTuple):
    """What makes the features; leading axes broadcast against those of the queries."""

    anchors: Tensor
    """[..., key_dim, P]."""
    directions: Tensor
    """[..., key_dim, features]."""
    shift: Tensor
    """[features], or [..., 1, features]."""
    log_scale: Tensor
    """Of the same shapes."""


@triton.jit
@no_type_check
def exponential(unit, directions, shift, log_scale, precision: tl.constexpr):
    """Positive random features; a padded one has a scale of exp(-inf) = 0."""
    exponents = tl.dot(unit, directions, input_precision=precision) - shift[None, :]
    return tl.exp(tl.minimum(tl.maximum(exponents, -20.0), 20.0) + log_scale[None, :])


@triton.jit
@no_type_check
def polynomial(unit, anchors, precision: tl.constexpr):
    """Squared cosines with all anchors; a padded one is 0."""
    cosines = tl.dot(unit, anchors, input_precision=precision)
    return cosines * cosines


@triton.jit
@no_type_check
def one_of_polynomial(unit, anchors_ptr, anchor, key_dim, num_anchors, dims: tl.constexpr):
    """Squared cosines with one anchor."""
    dim = tl.arange(0, dims)
    column = tl.load(anchors_ptr + dim * num_anchors + anchor, mask=dim < key_dim, other=0.0)
    cosines = tl.sum(unit * column[None, :], axis=1)
    return cosines * cosines


@triton.jit
@no_type_check
def state_kernel(
    k_ptr, v_ptr, anchors_ptr, directions_ptr, shift_ptr, log_scale_ptr, which_ptr, state_ptr, total_ptr,
    length, key_dim, value_dim, num_anchors, num_features, segment,
    rows: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, features: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Sum one anchor's b aₚ vᵀ and b aₚ over a segment; every segment that comes here is full."""
    head, index, anchor = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    which = tl.load(which_ptr + head)
    feature = tl.arange(0, features)
    shift = tl.load(shift_ptr + which * num_features + feature, mask=feature < num_features, other=0.0)
    log_scale = tl.load(
        log_scale_ptr + which * num_features + feature, mask=feature < num_features, other=-float("inf")
    )  # fmt: skip
    directions = load_tile(
        directions_ptr + which * key_dim * num_features, 0, key_dim, num_features, dims, features
    )  # fmt: skip
    state = tl.zeros((features, columns), dtype=tl.float32)
    total = tl.zeros((features,), dtype=tl.float32)
    for first in range(index * segment, (index + 1) * segment, rows):
        k = load_tile(k_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
        v = load_tile(v_ptr + head * length * value_dim, first, length, value_dim, rows, columns)
        unit = k / norms_of(k)[:, None]
        k_a = one_of_polynomial(unit, anchors_ptr + which * key_dim * num_anchors, anchor, key_dim, num_anchors, dims)
        weighted = exponential(unit, directions, shift, log_scale, precision) * k_a[:, None]
        state += tl.dot(tl.trans(weighted), v, input_precision=precision)
        total += tl.sum(weighted, axis=0)
    place = (head * tl.num_programs(1) + index) * num_anchors + anchor
    store_tile(
        state_ptr + place * num_features * value_dim, state, 0, num_features, value_dim, features, columns
    )  # fmt: skip
    tl.store(total_ptr + place * num_features + feature, total, mask=feature < num_features)


@triton.jit
@no_type_check
def output_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, anchors_ptr, directions_ptr, shift_ptr, log_scale_ptr, which_ptr,
    state_ptr, total_ptr, length, key_dim, value_dim, num_anchors, num_features, segment, num_states, delta,
    is_clamped: tl.constexpr, rows: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, features: tl.constexpr,
    anchor_columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Outputs of a tile of queries: the states before their segment, then tiles of scores inside it."""
    head, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * rows
    index = first // segment
    which = tl.load(which_ptr + head)
    anchors_ptr += which * key_dim * num_anchors
    feature = tl.arange(0, features)
    shift = tl.load(shift_ptr + which * num_features + feature, mask=feature < num_features, other=0.0)
    log_scale = tl.load(
        log_scale_ptr + which * num_features + feature, mask=feature < num_features, other=-float("inf")
    )  # fmt: skip
    directions = load_tile(
        directions_ptr + which * key_dim * num_features, 0, key_dim, num_features, dims, features
    )  # fmt: skip
    anchors = load_tile(anchors_ptr, 0, key_dim, num_anchors, dims, anchor_columns)
    q = load_tile(q_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    unit = q / norms_of(q)[:, None]
    q_a = polynomial(unit, anchors, precision)
    q_b = exponential(unit, directions, shift, log_scale, precision)
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    totals = tl.zeros((rows,), dtype=tl.float32)
    if index > 0:
        for anchor in range(num_anchors):
            place = (head * num_states + index - 1) * num_anchors + anchor
            state = load_tile(
                state_ptr + place * num_features * value_dim, 0, num_features, value_dim, features, columns
            )  # fmt: skip
            total = tl.load(total_ptr + place * num_features + feature, mask=feature < num_features, other=0.0)
            weight = one_of_polynomial(unit, anchors_ptr, anchor, key_dim, num_anchors, dims)
            sums += weight[:, None] * tl.dot(q_b, state, input_precision=precision)
            totals += weight * tl.sum(q_b * total[None, :], axis=1)
    for start in range(index * segment, first + rows, rows):
        k = load_tile(k_ptr + head * length * key_dim, start, length, key_dim, rows, dims)
        v = load_tile(v_ptr + head * length * value_dim, start, length, value_dim, rows, columns)
        unit_k = k / norms_of(k)[:, None]
        scores = tl.dot(q_a, tl.trans(polynomial(unit_k, anchors, precision)), input_precision=precision)
        k_b = exponential(unit_k, directions, shift, log_scale, precision)
        scores *= tl.dot(q_b, tl.trans(k_b), input_precision=precision)
        is_past = (first + tl.arange(0, rows))[:, None] >= (start + tl.arange(0, rows))[None, :]
        scores = tl.where(is_past, scores, 0.0)
        sums += tl.dot(scores, v, input_precision=precision)
        totals += tl.sum(scores, axis=1)
    out = sums / guarded(totals, delta, is_clamped)[:, None]
    store_tile(out_ptr + head * length * value_dim, out, first, length, value_dim, rows, columns)


def forward(
    constants: Constants,
    q: Float[Tensor, "*batch length key_dim"],
    k: Float[Tensor, "*batch length key_dim"],
    v: Float[Tensor, "*batch length value_dim"],
    *,
    guard: Guard,
    delta: float,
    segment: int | None = None,
) -> Float[Tensor, "*batch length value_dim"]:
    """Attend in float32; no gradient passes. A segment of fewer tokens than the length is whole tiles."""
    (length, key_dim), value_dim = q.shape[-2:], v.shape[-1]
    num_anchors, num_features = constants.anchors.shape[-1], constants.directions.shape[-1]
    anchors, directions, shift, log_scale, which = _spread(constants, q)
    queries, keys, values = by_head(q), by_head(k), by_head(v)
    heads, out = len(queries), torch.empty_like(values)
    segment = segment or segment_length(num_anchors * num_features, value_dim, num_anchors + num_features)
    num_states = -(-length // segment) - 1
    states, totals = (
        queries.new_empty(heads, num_states, num_anchors, num_features, *of) for of in ((value_dim,), ())
    )  # fmt: skip
    made_by = anchors, directions, shift, log_scale, which
    sizes = length, key_dim, value_dim, num_anchors, num_features, segment
    widths = {
        "rows": ROWS,
        "dims": padded(key_dim),
        "columns": padded(value_dim),
        "features": padded(num_features),
        "precision": precision(),
    }
    with torch.cuda.device_of(q):
        if num_states:
            state_kernel[heads, num_states, num_anchors](keys, values, *made_by, states, totals, *sizes, **widths)
            states, totals = states.cumsum(1), totals.cumsum(1)
        output_kernel[heads, num_tiles(length)](
            queries, keys, values, out, *made_by, states, totals, *sizes, num_states, delta,
            is_clamped=guard == "clamp", anchor_columns=padded(num_anchors), **widths,
        )  # fmt: skip
    return out.view(v.shape)


def _spread(constants: Constants, q: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """One set of constants after the other, contiguous, and which of them each head of ``q`` has.

    The factor P^(-1/2) of a squared cosine becomes P^(-1/4) of the anchor.
    """
    anchors = constants.anchors / constants.anchors.shape[-1] ** 0.25
    tensors = anchors, constants.directions, torch.atleast_2d(constants.shift), torch.atleast_2d(constants.log_scale)
    leading = torch.broadcast_shapes(*(x.shape[:-2] for x in tensors))
    anchors, directions, shift, log_scale = (by_head(x.expand(*leading, *x.shape[-2:])) for x in tensors)
    which = torch.arange(len(anchors), device=q.device).view(leading).expand(q.shape[:-2])
    return anchors, directions, shift, log_scale, which.reshape(-1)
