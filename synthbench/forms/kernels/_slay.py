"""The mechanism ``slay`` with features that are computed on chip and never written to the GPU's memory.

A key or a query with the unit vector û has the factors a = (û · anchors)² and b = exp(û · directions - shift +
log_scale). The score of a query (a, b) and a key (a', b') is ⟨a, a'⟩⟨b, b'⟩. A tile thus takes two small matrix
products, and no product as wide as a ⊗ b. For a sequence no longer than a segment, only tiles of scores are computed.
Longer sequences are cut into segments. One launch sums b (a ⊗ v)ᵀ over each segment, for a few anchors at a time, and b
aᵀ for the denominators. Running sums over the segments are the states, stored in bfloat16 for bfloat16 inputs. The
output kernel starts each query from the state before the segment of the query.

In the backward pass, each query has the vector g = [d_out, -(d_out · out)] / N(den), where N(den) is its guarded
denominator. The gradient of a score is the inner product of the query's g and the key's [v, 1]. The same kernel
computes the gradients of queries from earlier keys, and the gradients of keys from later queries. For the gradients of
keys, the states are sums of b aₚ gᵀ over later queries, for every anchor p.
"""

import math
from typing import Any, NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthbench.forms.kernels._tiles import (
    IS_INTERPRETED,
    ROWS,
    SEGMENTS,
    VARYING,
    by_head,
    guarded,
    head_and_row,
    hidden,
    is_past,
    load_column,
    load_tile,
    norms_of,
    num_tiles,
    padded,
    power_of_two,
    precision,
    product,
    running_sums,
    saturated_sum,
    segment_length,
    store_column,
    store_tile,
    through_norm,
)
from synthbench.forms.linear import Guard
from synthbench.forms.shapes import KeyRows, ValueRows
from synthbench.forms.streaming import gradient_of_sums

TILES = {"rows": ROWS, "step": ROWS // 2, "num_warps": 4}
"""Sizes of tiles: a tile of ``rows`` queries processes ``step`` keys at once. For the gradients of keys, a tile of
``rows`` keys processes ``step`` queries at once."""

WIDE_TILES = {"rows": SEGMENTS, "step": ROWS // 2, "num_warps": 8}
"""Sizes of tiles for the backward pass, except in bfloat16. The forward pass uses them in float32 without TF32, if
heads are padded to at least 32 channels."""

WIDEST_TILES = {"rows": SEGMENTS, "step": ROWS, "num_warps": 8}
"""Sizes of tiles for the forward pass in bfloat16, whose operands take few registers. Steps of 128 rows give wrong
sums, see ``gradient_tiles``."""

STATE_SIZE = 16_384
"""Limit on the size of the states that one program sums, in numbers."""

STATE_TILES = {"rows": ROWS, "num_warps": 8}
"""Rows that a program adds to states at once; with four warps its sums would not fit the registers."""

WIDE_STATE_TILES = {"rows": ROWS // 2, "num_warps": 8}
"""Tiles for states of float32 values, which take twice the shared memory."""

NARROW_STATE_TILES = {"rows": ROWS // 4, "num_warps": 8}
"""Tiles for states if operands take more registers, or features are too few to fill a warp group's instruction."""

STATE_COLUMNS = 256
"""Largest number of columns of a state that a program sums, or multiplies with queries, at once."""

LEAST_COLUMNS = tl.constexpr(16)
"""Smallest number of columns of an operand of a matrix instruction."""


LOG2_E = tl.constexpr(math.log2(math.e))

LARGEST = tl.constexpr(20 * math.log2(math.e))
"""Largest exponent to base 2; to base e it is 20."""


class Constants(NamedTuple):
    """Tensors that define the feature map of ``slay``.

    Their leading axes broadcast against the leading axes of the queries.
    """

    anchors: Tensor
    """Anchors, [..., key_dim, num_anchors]."""
    directions: Tensor
    """Directions, [..., key_dim, features]."""
    shift: Tensor
    """Shift of each feature, [features] or [..., 1, features]."""
    log_scale: Tensor
    """Logarithm of the scale of each feature, [features] or [..., 1, features]."""


class MadeBy(NamedTuple):
    """Constants in the layout that kernels read: the first axis runs over sets of constants.

    ``which`` holds, for each head, the index of its set.
    """

    anchors: Tensor
    directions: Tensor
    shift: Tensor
    log_scale: Tensor
    which: Tensor


@triton.jit
@no_type_check
def exponential(x, roots, directions, shift, log_scale, precision: tl.constexpr):
    """Compute positive random features of the rows of ``x``; padded features are 0.

    ``roots`` are the inverse norms of the rows. Exponents are to base 2, since the GPU has an instruction for 2^x.
    """
    products = product(x, directions, precision)
    if precision == "bf16":
        # Mapping the bounds to 0 and 1 saves two instructions, at an error of 2^-20.
        scales, offsets = roots * (LOG2_E / (2 * LARGEST)), 0.5 - shift / (2 * LARGEST)
        share = saturated_sum(products, scales[:, None], offsets[None, :])
        exponents = share * (2 * LARGEST) + (log_scale - LARGEST)[None, :]
    else:
        exponents = products * (roots * LOG2_E)[:, None] - shift[None, :]
        exponents = tl.minimum(tl.maximum(exponents, -LARGEST), LARGEST) + log_scale[None, :]
    return power_of_two(exponents)


@triton.jit
@no_type_check
def polynomial(x, roots, anchors, precision: tl.constexpr):
    """Compute the squared cosines between rows and anchors; for a padded anchor, the result is 0."""
    cosines = product(x, anchors, precision) * roots[:, None]
    return cosines * cosines


@triton.jit
@no_type_check
def scaled(values, scales):
    """Multiply values by scales. For bfloat16 values, scales are rounded to bfloat16."""
    if values.dtype != tl.bfloat16:
        out = values * scales
    elif IS_INTERPRETED:
        out = values.to(tl.float32) * scales.to(tl.bfloat16).to(tl.float32)
    else:
        scales = scales.to(tl.bfloat16)
        out = tl.inline_asm_elementwise(
            "mul.bf16x2 $0, $1, $2;", "=r,r,r", [values, scales], dtype=tl.bfloat16, is_pure=True, pack=2
        )  # fmt: skip
    return out


@triton.jit
@no_type_check
def columns_of(tile, group, rows: tl.constexpr, columns: tl.constexpr, at_once: tl.constexpr):
    """Return ``at_once`` neighbouring columns of a tile, beginning with column ``group * at_once``."""
    groups: tl.constexpr = columns // at_once
    is_group = tl.arange(0, groups)[None, :, None] == group
    return tl.sum(tl.where(is_group, tl.reshape(tile, (rows, groups, at_once)), 0.0), axis=1)


@triton.jit
@no_type_check
def load_exponential(
    directions_ptr, shift_ptr, log_scale_ptr, which, key_dim: tl.constexpr, num_features: tl.constexpr,
    dims: tl.constexpr, features: tl.constexpr,
):  # fmt: skip
    """Load the directions, shifts and log scales of the set of constants with index ``which``.

    Shifts and log scales are converted from base e to base 2.
    """
    feature = tl.arange(0, features)
    is_inside = feature < num_features
    shift = tl.load(shift_ptr + which * num_features + feature, mask=is_inside, other=0.0)
    log_scale = tl.load(log_scale_ptr + which * num_features + feature, mask=is_inside, other=-float("inf"))
    directions = load_tile(directions_ptr + which * key_dim * num_features, 0, key_dim, num_features, dims, features)
    return directions, shift * LOG2_E, log_scale * LOG2_E


@triton.jit
@no_type_check
def first_columns(tile, num_halvings: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    """Halve a tile ``num_halvings`` times, and return its first ``columns / 2^num_halvings`` columns."""
    for halving in tl.static_range(num_halvings):
        halves = tl.reshape(tile, (rows, 2, columns >> (halving + 1)))
        tile, _ = tl.split(tl.permute(halves, (0, 2, 1)))
    return tile


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def state_kernel(
    x_ptr, values_ptr, weight_ptr, anchors_ptr, directions_ptr, shift_ptr, log_scale_ptr, which_ptr,
    state_ptr, total_ptr, length, segment,
    key_dim: tl.constexpr, value_dim: tl.constexpr, num_anchors: tl.constexpr, num_features: tl.constexpr,
    num_halvings: tl.constexpr, is_after: tl.constexpr, rows: tl.constexpr, dims: tl.constexpr,
    columns: tl.constexpr, features: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Compute states Σ b (a ⊗ values)ᵀ and totals Σ b (a weight)ᵀ of each segment except the last, for some anchors.

    The sums run over the tokens of a segment, with squared cosines a and exponential features b. With ``is_after``, the
    first segment is left out instead of the last. A row beyond the length has a = 0. A state is [features, anchors,
    value_dim], and a total is [features, anchors].
    """
    head, index, group = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    which = tl.load(which_ptr + head)
    x_ptr += head * length * key_dim
    values_ptr += head * length * value_dim
    directions, shift, log_scale = load_exponential(
        directions_ptr, shift_ptr, log_scale_ptr, which, key_dim, num_features, dims, features
    )
    # There are more columns than anchors; the other columns are 0.
    at_once: tl.constexpr = LEAST_COLUMNS >> num_halvings
    dim, column = tl.arange(0, dims), tl.arange(0, LEAST_COLUMNS)
    anchor = group * at_once + column
    is_anchor = (column < at_once) & (anchor < num_anchors)
    anchors = tl.load(
        anchors_ptr + which * key_dim * num_anchors + dim[:, None] * num_anchors + anchor[None, :],
        mask=(dim[:, None] < key_dim) & is_anchor[None, :],
        other=0.0,
    )
    state = tl.zeros((features, at_once * columns), dtype=tl.float32)
    total = tl.zeros((features, LEAST_COLUMNS), dtype=tl.float32)
    for first in range((index + is_after) * segment, (index + is_after + 1) * segment, rows):
        x = load_tile(x_ptr, first, length, key_dim, rows, dims, may_end=is_after)
        values = load_tile(
            values_ptr, first, length, value_dim, rows, columns, may_end=is_after, repeats=at_once
        )  # fmt: skip
        weight = load_column(weight_ptr + head * length, first, length, rows)
        roots = 1 / norms_of(x)
        a = polynomial(x, roots, anchors, precision)
        b = tl.trans(exponential(x, roots, directions, shift, log_scale, precision))
        scales = first_columns(a, num_halvings, rows, LEAST_COLUMNS)
        scales = tl.broadcast_to(scales[:, :, None], (rows, at_once, columns))
        state += product(b, scaled(values, tl.reshape(scales, (rows, at_once * columns))), precision)
        total += product(b, a * weight[:, None], precision)
    place = head * tl.num_programs(1) + index
    feature = tl.arange(0, features)
    of_total = feature[:, None] * num_anchors + anchor[None, :]
    tl.store(
        total_ptr + place * num_features * num_anchors + of_total,
        total,
        mask=(feature[:, None] < num_features) & is_anchor[None, :],
    )
    wide_column = tl.arange(0, at_once * columns)
    wide_anchor, value = group * at_once + wide_column // columns, wide_column % columns
    of_state = feature[:, None] * (num_anchors * value_dim) + (wide_anchor * value_dim + value)[None, :]
    is_inside = (wide_anchor < num_anchors) & (value < value_dim)
    tl.store(
        state_ptr + place * num_features * num_anchors * value_dim + of_state,
        state,
        mask=(feature[:, None] < num_features) & is_inside[None, :],
    )


@triton.jit
@no_type_check
def load_state(
    state_ptr, first_anchor, num_anchors: tl.constexpr, num_features: tl.constexpr, value_dim: tl.constexpr,
    features: tl.constexpr, columns: tl.constexpr, at_once: tl.constexpr = 1,
):  # fmt: skip
    """Load, side by side, the parts of a state that belong to ``at_once`` anchors, beginning with ``first_anchor``."""
    feature, column = tl.arange(0, features), tl.arange(0, at_once * columns)
    anchor, value = column // columns, column % columns
    of_state = (first_anchor + anchor) * value_dim + value
    places = state_ptr + feature[:, None] * (num_anchors * value_dim) + of_state[None, :]
    # With first_anchor on the left side, the compiler unrolls the loop over 32 anchors, and spills an address.
    is_inside = (anchor < num_anchors - first_anchor) & (value < value_dim)
    return tl.load(places, mask=(feature[:, None] < num_features) & is_inside[None, :], other=0.0)


@triton.jit
@no_type_check
def add_keys(
    sums, totals, q_a, q_b, k_ptr, v_ptr, anchors, directions, shift, log_scale, first, start, length,
    key_dim: tl.constexpr, value_dim: tl.constexpr,
    rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr, precision: tl.constexpr,
    is_diagonal: tl.constexpr,
):  # fmt: skip
    """Add the contribution of a tile of keys to a tile of queries: to its sums of weighted values and of weights."""
    k = load_tile(k_ptr, start, length, key_dim, step, dims, may_end=is_diagonal)
    roots = 1 / norms_of(k)
    k_a = polynomial(k, roots, anchors, precision)
    k_b = exponential(k, roots, directions, shift, log_scale, precision)
    scores = product(q_a, tl.trans(k_a), precision)
    if is_diagonal:
        scores = tl.where(is_past(first, start, rows, step), scores, 0.0)
    scores *= product(q_b, tl.trans(k_b), precision)
    v = load_tile(v_ptr, start, length, value_dim, step, columns, may_end=is_diagonal)
    if precision == "bf16":
        # Sums of rounded scores, as for the values, by the tensor cores.
        totals += product(scores, tl.full((step, LEAST_COLUMNS), 1.0, dtype=tl.float32), precision)
    else:
        totals += tl.sum(scores, axis=1)
    return sums + product(scores, v, precision), totals


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def output_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, denominator_ptr, anchors_ptr, directions_ptr, shift_ptr, log_scale_ptr, which_ptr,
    state_ptr, total_ptr, length, segment, num_states, delta,
    key_dim: tl.constexpr, value_dim: tl.constexpr, num_anchors: tl.constexpr, num_features: tl.constexpr,
    is_clamped: tl.constexpr, rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr,
    features: tl.constexpr, anchor_columns: tl.constexpr, at_once: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Compute outputs of a tile of queries, from the state before their segment and from scores within the segment."""
    head, first = head_and_row(length, rows, is_key=False)
    index = first // segment
    which = tl.load(which_ptr + head)
    k_ptr += head * length * key_dim
    v_ptr += head * length * value_dim
    directions, shift, log_scale = load_exponential(
        directions_ptr, shift_ptr, log_scale_ptr, which, key_dim, num_features, dims, features
    )
    anchors = load_tile(
        anchors_ptr + which * key_dim * num_anchors, 0, key_dim, num_anchors, dims, anchor_columns
    )  # fmt: skip
    q = load_tile(q_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    roots = 1 / norms_of(q)
    q_a = polynomial(q, roots, anchors, precision)
    q_b = exponential(q, roots, directions, shift, log_scale, precision)
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    totals = tl.zeros((rows,), dtype=tl.float32)
    if index > 0:
        place = (head * num_states + index - 1) * num_features * num_anchors
        total = load_tile(total_ptr + place, 0, num_features, num_anchors, features, anchor_columns)
        totals += tl.sum(q_a * product(q_b, total, precision), axis=1)
        for group in range(tl.cdiv(num_anchors, at_once)):
            state = load_state(
                state_ptr + place * value_dim, group * at_once, num_anchors, num_features, value_dim, features,
                columns, at_once,
            )  # fmt: skip
            read = tl.reshape(product(q_b, state, precision), (rows, at_once, columns))
            sums += tl.sum(columns_of(q_a, group, rows, anchor_columns, at_once)[:, :, None] * read, axis=1)
    if precision == "bf16":
        totals = tl.broadcast_to(totals[:, None], (rows, LEAST_COLUMNS))
    for start in tl.range(index * segment, first, step, disable_licm=dims > 32):
        sums, totals = add_keys(
            sums, totals, q_a, q_b, k_ptr, v_ptr, anchors, directions, shift, log_scale, first, start, length,
            key_dim, value_dim, rows, step, dims, columns, precision, is_diagonal=False,
        )  # fmt: skip
    for start in range(first, first + rows, step):
        sums, totals = add_keys(
            sums, totals, q_a, q_b, k_ptr, v_ptr, anchors, directions, shift, log_scale, first, start, length,
            key_dim, value_dim, rows, step, dims, columns, precision, is_diagonal=True,
        )  # fmt: skip
    if precision == "bf16":
        totals = tl.sum(totals, axis=1) / LEAST_COLUMNS  # all columns are equal
    out = sums / guarded(totals, delta, is_clamped)[:, None]
    # Otherwise the addresses of the queries would be kept until here, in registers that the loops need.
    first = hidden(first)
    store_tile(out_ptr + head * length * value_dim, out, first, length, value_dim, rows, columns)
    store_column(denominator_ptr + head * length, totals, first, length, rows)


@triton.jit
@no_type_check
def add_gradients(
    d_a, d_b, d_values, x_a, x_b, values, weight, other_ptr, other_values_ptr, other_weight_ptr,
    anchors, directions, shift, log_scale, first, start, length, key_dim: tl.constexpr, value_dim: tl.constexpr,
    is_key: tl.constexpr, rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr,
    precision: tl.constexpr, is_diagonal: tl.constexpr,
):  # fmt: skip
    """Add the contribution of a tile of other tokens to the gradients of a tile.

    The other tokens are keys if the tile consists of queries, and queries if it consists of keys.
    """
    other = load_tile(other_ptr, start, length, key_dim, step, dims)
    other_values = load_tile(other_values_ptr, start, length, value_dim, step, columns)
    other_weight = load_column(other_weight_ptr, start, length, step)
    roots = 1 / norms_of(other)
    other_a = polynomial(other, roots, anchors, precision)
    other_b = exponential(other, roots, directions, shift, log_scale, precision)
    d_scores = product(values, tl.trans(other_values), precision)
    d_scores += weight[:, None] * other_weight[None, :]
    gram_a = product(x_a, tl.trans(other_a), precision)
    gram_b = product(x_b, tl.trans(other_b), precision)
    if is_diagonal:
        may_attend = is_past(first, start, rows, step, is_key)
        d_scores = tl.where(may_attend, d_scores, 0.0)
    d_a += product(d_scores * gram_b, other_a, precision)
    d_b += product(d_scores * gram_a, other_b, precision)
    if is_key:
        scores = gram_a * gram_b
        if is_diagonal:
            scores = tl.where(may_attend, scores, 0.0)
        d_values += product(scores, other_values, precision)
    return d_a, d_b, d_values


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def gradient_kernel(
    x_ptr, values_ptr, weight_ptr, other_ptr, other_values_ptr, other_weight_ptr, d_x_ptr, d_values_ptr,
    anchors_ptr, directions_ptr, shift_ptr, log_scale_ptr, which_ptr, state_ptr, total_ptr,
    length, segment, num_states,
    key_dim: tl.constexpr, value_dim: tl.constexpr, num_anchors: tl.constexpr, num_features: tl.constexpr,
    is_key: tl.constexpr, rows: tl.constexpr, step: tl.constexpr, dims: tl.constexpr, columns: tl.constexpr,
    features: tl.constexpr, anchor_columns: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a tile of queries, from all keys that the queries attend to.

    With ``is_key``, compute instead the gradients of a tile of keys and their values, from all queries that attend to
    the keys. For a key, ``values`` and ``weight`` together are [v, 1]. For a query, ``values`` and ``weight`` are the
    gradient of the loss with respect to the numerator and the denominator. The states are sums over tokens of other
    segments: keys for a query, queries for a key.
    """
    head, first = head_and_row(length, rows, is_key)
    index = first // segment
    which = tl.load(which_ptr + head)
    other_ptr += head * length * key_dim
    other_values_ptr += head * length * value_dim
    other_weight_ptr += head * length
    directions, shift, log_scale = load_exponential(
        directions_ptr, shift_ptr, log_scale_ptr, which, key_dim, num_features, dims, features
    )
    anchors = load_tile(
        anchors_ptr + which * key_dim * num_anchors, 0, key_dim, num_anchors, dims, anchor_columns
    )  # fmt: skip
    x = load_tile(x_ptr + head * length * key_dim, first, length, key_dim, rows, dims)
    values = load_tile(values_ptr + head * length * value_dim, first, length, value_dim, rows, columns)
    weight = load_column(weight_ptr + head * length, first, length, rows)
    roots = 1 / norms_of(x)
    x_a = polynomial(x, roots, anchors, precision)
    x_b = exponential(x, roots, directions, shift, log_scale, precision)
    d_a = tl.zeros((rows, anchor_columns), dtype=tl.float32)
    d_b = tl.zeros((rows, features), dtype=tl.float32)
    d_values = tl.zeros((rows, columns), dtype=tl.float32)
    slot = index if is_key else index - 1
    if (slot >= 0) & (slot < num_states):
        place = (head * num_states + slot) * num_features * num_anchors
        total = load_tile(total_ptr + place, 0, num_features, num_anchors, features, anchor_columns)
        d_a += weight[:, None] * product(x_b, total, precision)
        d_b += product(x_a * weight[:, None], tl.trans(total), precision)
        for anchor in range(num_anchors):
            state = load_state(
                state_ptr + place * value_dim, anchor, num_anchors, num_features, value_dim, features, columns
            )
            a = columns_of(x_a, anchor, rows, anchor_columns, 1)
            read = product(x_b, state, precision)
            d_one = tl.sum(read * values, axis=1)
            d_a += tl.where(tl.arange(0, anchor_columns)[None, :] == anchor, d_one[:, None], 0.0)
            d_b += a * product(values, tl.trans(state), precision)
            d_values += a * read
    for start in tl.range(first, first + rows, step, disable_licm=precision != "bf16"):
        d_a, d_b, d_values = add_gradients(
            d_a, d_b, d_values, x_a, x_b, values, weight, other_ptr, other_values_ptr, other_weight_ptr,
            anchors, directions, shift, log_scale, first, start, length, key_dim, value_dim,
            is_key, rows, step, dims, columns, precision, is_diagonal=True,
        )  # fmt: skip
    if is_key:
        begin, end = first + rows, tl.minimum((index + 1) * segment, length)
    else:
        begin, end = index * segment, first
    for start in tl.range(begin, end, step, disable_licm=precision != "bf16"):
        d_a, d_b, d_values = add_gradients(
            d_a, d_b, d_values, x_a, x_b, values, weight, other_ptr, other_values_ptr, other_weight_ptr,
            anchors, directions, shift, log_scale, first, start, length, key_dim, value_dim,
            is_key, rows, step, dims, columns, precision, is_diagonal=False,
        )  # fmt: skip
    # Reading the rows again takes fewer registers than keeping them.
    x = load_tile(x_ptr + head * length * key_dim, first, length, key_dim, rows, dims, is_again=True)
    norms = norms_of(x)
    roots = 1 / norms
    d_cosines = 2 * d_a * product(x, anchors, precision) * roots[:, None]
    exponents = product(x, directions, precision) * (roots * LOG2_E)[:, None] - shift[None, :]
    d_exponents = tl.where(tl.abs(exponents) < LARGEST, d_b * x_b, 0.0)
    d_unit = product(d_cosines, tl.trans(anchors), precision)
    d_unit += product(d_exponents, tl.trans(directions), precision)
    d_x = through_norm(d_unit, x * roots[:, None], norms)
    store_tile(d_x_ptr + head * length * key_dim, d_x, first, length, key_dim, rows, dims)
    if is_key:
        store_tile(d_values_ptr + head * length * value_dim, d_values, first, length, value_dim, rows, columns)


def attend(
    constants: Constants,
    q: KeyRows,
    k: KeyRows,
    v: ValueRows,
    *,
    guard: Guard,
    delta: float,
    segment: int | None = None,
) -> ValueRows:
    """Attend as the mechanism ``slay`` does; q, k and v receive gradients of the first order only.

    A sequence is cut into segments of ``segment`` tokens, a multiple of the number of rows of a tile. A query uses
    scores for keys of its own segment, and a state for all earlier segments. If ``segment`` is None, it is chosen by
    estimated cost.
    """
    num_anchors, num_features = constants.anchors.shape[-1], constants.directions.shape[-1]
    segment = segment or segment_length(num_anchors * num_features, v.shape[-1], num_anchors + num_features)
    out: Tensor = _Attend.apply(_spread(constants, q), segment, guard, delta, q, k, v)  # type: ignore[no-untyped-call]
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, made_by: MadeBy, segment: int, guard: Guard, delta: float, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        queries, keys, values = by_head(q), by_head(k), by_head(v)
        out, denominators = torch.empty_like(values), values.new_empty(values.shape[:-1], dtype=torch.float32)
        num_states = num_tiles(q.shape[-2], segment) - 1
        ones = torch.ones_like(denominators)
        before = _states(keys, values, ones, made_by, segment)
        widths = _widths(queries, values, made_by)
        tiles = output_tiles(widths["precision"], widths["dims"])
        with torch.cuda.device_of(q):
            output_kernel[(len(queries) * num_tiles(q.shape[-2], tiles["rows"]),)](
                queries, keys, values, out, denominators, *made_by, *before, q.shape[-2], segment, num_states, delta,
                is_clamped=guard == "clamp",
                anchor_columns=padded(made_by.anchors.shape[-1]),
                at_once=anchors_read(made_by.anchors.shape[-1], widths["columns"], widths["precision"]),
                **widths, **tiles,
            )  # fmt: skip
        ctx.made_by, ctx.segment, ctx.guard, ctx.delta = made_by, segment, guard, delta
        ctx.save_for_backward(q, k, v, out, denominators)
        return out.view(v.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, denominators = ctx.saved_tensors
        made_by, segment = ctx.made_by, ctx.segment
        queries, keys, values = by_head(q), by_head(k), by_head(v)
        g_and_weight = gradient_of_sums(
            ctx.guard, ctx.delta, by_head(d_out).float(), out.float(), denominators.unsqueeze(-1)
        )
        g, g_weight = g_and_weight[..., :-1].contiguous(), g_and_weight[..., -1].contiguous()
        ones = torch.ones_like(denominators)
        before = _states(keys, values, ones, made_by, segment)
        after = _states(queries, g, g_weight, made_by, segment, is_after=True)
        d_q, d_k, d_v = torch.empty_like(queries), torch.empty_like(keys), torch.empty_like(values)
        query, key = (queries, g, g_weight), (keys, values, ones)
        sizes = q.shape[-2], segment, num_tiles(q.shape[-2], segment) - 1
        widths = _widths(queries, values, made_by)
        widths |= {**gradient_tiles(widths["precision"]), "anchor_columns": padded(made_by.anchors.shape[-1])}
        grid = (len(queries) * num_tiles(q.shape[-2], widths["rows"]),)
        with torch.cuda.device_of(q):
            gradient_kernel[grid](*query, *key, d_q, d_v, *made_by, *before, *sizes, is_key=False, **widths)
            gradient_kernel[grid](*key, *query, d_k, d_v, *made_by, *after, *sizes, is_key=True, **widths)
        return None, None, None, None, d_q.view(q.shape), d_k.view(k.shape), d_v.view(v.shape)


def _states(
    x: Tensor, values: Tensor, weights: Tensor, made_by: MadeBy, segment: int, *, is_after: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute states and totals before every segment but the first; with ``is_after``, after every one but the last."""
    num_states = num_tiles(x.shape[-2], segment) - 1
    num_anchors, num_features = made_by.anchors.shape[-1], made_by.directions.shape[-1]
    totals = x.new_empty(len(x), num_states, num_features, num_anchors, dtype=torch.float32)
    states = totals.new_empty(*totals.shape, values.shape[-1])
    widths = _widths(x, values, made_by)
    halvings = num_halvings(widths["features"], widths["columns"], widths["precision"])
    num_groups = num_tiles(num_anchors, LEAST_COLUMNS.value >> halvings)
    tiles = NARROW_STATE_TILES
    if widths["precision"] == "bf16" and widths["features"] >= ROWS:
        tiles = STATE_TILES if values.dtype == torch.bfloat16 else WIDE_STATE_TILES
    if num_states:
        with torch.cuda.device_of(x):
            state_kernel[len(x), num_states, num_groups](
                x, values, weights, *made_by, states, totals, x.shape[-2], segment,
                num_halvings=halvings, is_after=is_after, **widths, **tiles,
            )  # fmt: skip
    before, of_weights = (running_sums(x, widths["precision"], is_reversed=is_after) for x in (states, totals))
    return before, of_weights


def output_tiles(precision: str, dims: int) -> dict[str, int]:
    """Return the tile sizes of the output kernel.

    Tiles are small in TF32: wide tiles, assembled by ptxas 12.8, gave wrong sums on an H100.
    """
    if precision == "bf16":
        return WIDEST_TILES
    return WIDE_TILES if precision != "tf32" and dims >= 32 else TILES


def gradient_tiles(precision: str) -> dict[str, int]:
    """Return the tile sizes of the gradient kernel: small tiles in bfloat16, wide tiles otherwise.

    On an H200, in bfloat16, wider tiles compiled by Triton 3.6 gave wrong sums or an illegal memory access. The cause
    is probably Triton's assembler, see ``_assembler``.
    """
    return TILES if precision == "bf16" else WIDE_TILES


def anchors_read(num_anchors: int, columns: int, precision: str) -> int:
    """Return the number of anchors whose states the output kernel reads at once.

    The number is 1 unless the operands of matrix products are bfloat16. For example, if float32 operands are split into
    three bfloat16 parts, the state of one anchor already fills the registers.
    """
    return min(STATE_COLUMNS // columns, triton.next_power_of_2(num_anchors)) if precision == "bf16" else 1


def num_halvings(features: int, columns: int, precision: str) -> int:
    """Return how many times to halve ``LEAST_COLUMNS`` to get the number of anchors whose states one GPU program sums.

    This number of anchors is the largest power of two below ``LEAST_COLUMNS`` whose states fit, but at least 1. If
    float32 operands are split into three bfloat16 parts, half as many anchors fit.
    """
    num_columns = min(STATE_COLUMNS, STATE_SIZE // features)
    at_once = max(1, min(LEAST_COLUMNS.value // 2, num_columns // columns) >> (precision == "bf16x6"))
    return int(math.log2(LEAST_COLUMNS.value // at_once))


def _widths(x: Tensor, values: Tensor, made_by: MadeBy) -> dict[str, Any]:
    num_anchors, num_features = made_by.anchors.shape[-1], made_by.directions.shape[-1]
    return {
        "key_dim": x.shape[-1],
        "value_dim": values.shape[-1],
        "num_anchors": num_anchors,
        "num_features": num_features,
        "dims": padded(x.shape[-1]),
        "columns": padded(values.shape[-1]),
        "features": padded(num_features),
        "precision": precision(x.dtype),
    }


def _spread(constants: Constants, q: Tensor) -> MadeBy:
    """Arrange the sets of constants for kernels, in float32.

    With P anchors, squared cosines have the factor P^(-1/2), which is applied as a factor P^(-1/4) of the anchors.
    """
    anchors = constants.anchors / constants.anchors.shape[-1] ** 0.25
    tensors = anchors, constants.directions, torch.atleast_2d(constants.shift), torch.atleast_2d(constants.log_scale)
    leading = torch.broadcast_shapes(*(x.shape[:-2] for x in tensors))
    anchors, directions, shift, log_scale = (by_head(x.expand(*leading, *x.shape[-2:]).float()) for x in tensors)
    sets = torch.arange(math.prod(leading), device=q.device).view(leading)
    return MadeBy(anchors, directions, shift, log_scale, sets.expand(q.shape[:-2]).reshape(-1))
