"""What the kernels share: tiles of rows, unit vectors, the guarded division, and how PyTorch launches them.

A kernel sees tensors as [heads, length, width], contiguous; a tile is padded to powers of two, with zeros beyond the
tensor's edge, and is float32 whatever the tensor. Functions under ``triton.jit`` are not checked by types: Triton
compiles their source.
"""

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from synthbench.forms.linear import flattened

ROWS = 64
"""Queries or keys a tile: the smallest that fills a warp group's matrix instruction."""


VARYING = ("length", "num_states", "offset")
"""Numbers that Triton compiles a kernel for once: else again where one is 1, and again where 16 divides it."""


@triton.jit
@no_type_check
def load_tile(
    start_ptr, first, length, width: tl.constexpr, num_rows: tl.constexpr, num_columns: tl.constexpr,
    may_end: tl.constexpr = True,  # noqa: FBT002 - Triton's, and named where it is given
):  # fmt: skip
    """Rows ``first`` and on of a [length, width] matrix, all of which are there unless it may end before."""
    rows, columns = first + tl.arange(0, num_rows), tl.arange(0, num_columns)
    places = start_ptr + rows[:, None] * width + columns[None, :]
    if may_end or width < num_columns:
        tile = tl.load(places, mask=(rows[:, None] < length) & (columns[None, :] < width), other=0.0)
    else:
        tile = tl.load(places)
    return tile.to(tl.float32)


@triton.jit
@no_type_check
def store_tile(start_ptr, tile, first, length, width: tl.constexpr, num_rows: tl.constexpr, num_columns: tl.constexpr):
    """Write what :func:`load_tile` would read, rounded to the tensor's type."""
    rows, columns = first + tl.arange(0, num_rows), tl.arange(0, num_columns)
    is_inside = (rows[:, None] < length) & (columns[None, :] < width)
    tl.store(start_ptr + rows[:, None] * width + columns[None, :], tile, mask=is_inside)


@triton.jit
@no_type_check
def load_column(start_ptr, first, length, num_rows: tl.constexpr):
    """One number a row, 0 beyond the length."""
    rows = first + tl.arange(0, num_rows)
    return tl.load(start_ptr + rows, mask=rows < length, other=0.0)


@triton.jit
@no_type_check
def store_column(start_ptr, column, first, length, num_rows: tl.constexpr):
    """Write what :func:`load_column` would read."""
    rows = first + tl.arange(0, num_rows)
    tl.store(start_ptr + rows, column, mask=rows < length)


@triton.jit
@no_type_check
def norms_of(tile):
    """Lengths of the rows, at least 1e-12."""
    return tl.maximum(tl.sqrt(tl.sum(tile * tile, axis=1)), 1e-12)


@triton.jit
@no_type_check
def unit_rows(tile):
    """Rows over their lengths: one division a row."""
    return tile * (1 / norms_of(tile))[:, None]


@triton.jit
@no_type_check
def is_past(first, start, rows: tl.constexpr):
    """Which keys of the tile at ``start`` the queries of the tile at ``first`` may attend."""
    return (first + tl.arange(0, rows))[:, None] >= (start + tl.arange(0, rows))[None, :]


@triton.jit
@no_type_check
def through_norm(d_unit, unit, norms):
    """From the gradient of unit vectors to that of the vectors; one of length 1e-12 at most is only divided by it."""
    along = tl.where(norms > 1e-12, tl.sum(d_unit * unit, axis=1), 0.0)
    return (d_unit - along[:, None] * unit) / norms[:, None]


@triton.jit
@no_type_check
def guarded(totals, delta, is_clamped: tl.constexpr):
    """The denominators that :func:`synthbench.forms.linear.normalise` divides by."""
    if is_clamped:
        return tl.maximum(totals, delta)
    return totals + delta


def padded(width: int) -> int:
    """The power of two that a tile has for this width; a matrix instruction takes 16 at least."""
    return max(16, int(triton.next_power_of_2(width)))


def num_tiles(length: int, rows: int = ROWS) -> int:
    """Tiles, or segments, of so many rows that cover the length."""
    return -(-length // rows)


def precision(dtype: torch.dtype) -> str:
    """How products round their float32 operands: as PyTorch's own are told to, or to TF32 for inputs with no more."""
    return "tf32" if dtype != torch.float32 or torch.backends.cuda.matmul.allow_tf32 else "ieee"


def by_head(x: Tensor) -> Tensor:
    """[..., length, width] as contiguous [heads, length, width]."""
    return flattened(x).contiguous()


def segment_length(features: int, value_dim: int, gram_width: int) -> int:
    """Tokens up to which scores are cheaper than a state, in whole tiles and at least four of them.

    By arithmetic, not measured: half of L rows of scores, L (gram_width + value_dim + 1) flops a token, cost as much
    as reading and updating a state of features x (value_dim + 1) from here on.
    """
    crossing = 4 * (value_dim + 1) * features / (gram_width + value_dim + 1)
    return ROWS * max(4, math.ceil(crossing / ROWS))
