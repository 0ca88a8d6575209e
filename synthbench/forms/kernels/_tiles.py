"""Code shared by the kernels: tiles, matrix products, unit vectors, the guarded division, and helpers for launches.

A kernel receives contiguous tensors [heads, length, width]. A tile is padded to powers of two, with zeros beyond the
tensor's edge. Functions under ``triton.jit`` are exempt from type checks, since Triton compiles their source.
"""

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import libdevice

from synthbench.forms.linear import flattened

ROWS = 64
"""Number of queries or keys in a tile: the smallest that fills a warp group's matrix instruction."""

SEGMENTS = 128
"""Number of rows of the largest tile; the length of a segment is a multiple of it."""

RUNNING_TILES = {"rows": 16, "columns": 128, "num_warps": 1}
"""Numbers of states and columns that a program adds up at once: enough to hide the latency of reading them."""

IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

VARYING = ("length", "num_states")
"""Arguments for which Triton must not specialise a kernel. Otherwise it would compile the kernel again for a value of 1
and for a multiple of 16."""


@triton.jit
@no_type_check
def load_tile(
    start_ptr, first, length, width: tl.constexpr, num_rows: tl.constexpr, num_columns: tl.constexpr,
    may_end: tl.constexpr = True,  # noqa: FBT002 - Triton's, and named where it is given
    is_again: tl.constexpr = False,  # noqa: FBT002
    repeats: tl.constexpr = 1,
):  # fmt: skip
    """Load a tile of a [length, width] matrix, from row ``first`` on; places beyond the matrix get 0.

    ``may_end`` must be True if the matrix can end within the tile. Offsets are computed in 32 bits, which suffice for
    the matrix of one head, see ``MAX_LENGTH``. With ``is_again``, rows are read from memory again instead of kept in
    registers. The tile holds ``repeats`` copies of the rows side by side.
    """
    rows, columns = tl.arange(0, num_rows), tl.arange(0, repeats * num_columns)
    if repeats > 1:
        columns = columns % num_columns
    places = start_ptr + (first * width + (rows[:, None] * width + columns[None, :]))
    if may_end or width < num_columns:
        is_inside = (rows[:, None] < length - first) & (columns[None, :] < width)
        tile = tl.load(places, mask=is_inside, other=0.0, volatile=is_again)
    else:
        tile = tl.load(places, volatile=is_again)
    return tile


@triton.jit
@no_type_check
def power_of_two(x):
    """Compute 2^x in one instruction. Triton's own function takes four, to keep denormal numbers exact."""
    if IS_INTERPRETED:  # noqa: SIM108 - Triton compiles both sides of an expression
        power = tl.exp2(x)
    else:
        power = libdevice.exp2(x)
    return power


@triton.jit
@no_type_check
def leading(x):
    """Truncate a float32 number to its first eight significant binary digits, as many as bfloat16 holds."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def multiply_bfloat16(x, y, sums):
    """Add x @ y to ``sums``, with operands rounded to bfloat16."""
    return tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16), sums)


@triton.jit
@no_type_check
def product(x, y, precision: tl.constexpr):
    """Compute x @ y, with sums in float32; :func:`precision` explains how x and y are rounded."""
    if precision == "bf16":
        out = tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16))
    elif precision == "bf16x6":
        # Three parts of eight digits hold all digits of a number; products beyond the 24th digit are left out.
        x_top, y_top = leading(x), leading(y)
        x_rest, y_rest = x - x_top, y - y_top
        x_middle, y_middle = leading(x_rest), leading(y_rest)
        out = multiply_bfloat16(x_rest - x_middle, y_top, None)
        out = multiply_bfloat16(x_top, y_rest - y_middle, out)
        out = multiply_bfloat16(x_middle, y_middle, out)
        out = multiply_bfloat16(x_middle, y_top, out)
        out = multiply_bfloat16(x_top, y_middle, out)
        out = multiply_bfloat16(x_top, y_top, out)
    else:
        out = tl.dot(x.to(tl.float32), y.to(tl.float32), input_precision=precision)
    return out


@triton.jit
@no_type_check
def store_tile(start_ptr, tile, first, length, width: tl.constexpr, num_rows: tl.constexpr, num_columns: tl.constexpr):
    """Write a tile, rounded to the tensor's dtype, to the addresses from which :func:`load_tile` reads."""
    rows, columns = tl.arange(0, num_rows), tl.arange(0, num_columns)
    places = start_ptr + (first * width + (rows[:, None] * width + columns[None, :]))
    tl.store(places, tile, mask=(rows[:, None] < length - first) & (columns[None, :] < width))


@triton.jit
@no_type_check
def load_column(start_ptr, first, length, num_rows: tl.constexpr):
    """Load one number per row, from row ``first`` on; rows beyond the length get 0."""
    rows = tl.arange(0, num_rows)
    return tl.load(start_ptr + first + rows, mask=rows < length - first, other=0.0)


@triton.jit
@no_type_check
def store_column(start_ptr, column, first, length, num_rows: tl.constexpr):
    """Write a column to the addresses from which :func:`load_column` reads."""
    rows = tl.arange(0, num_rows)
    tl.store(start_ptr + first + rows, column, mask=rows < length - first)


@triton.jit
@no_type_check
def norms_of(tile):
    """Compute the Euclidean norm of each row of a tile; a norm below 1e-12 becomes 1e-12."""
    tile = tile.to(tl.float32)
    return tl.maximum(tl.sqrt(tl.sum(tile * tile, axis=1)), 1e-12)


@triton.jit
@no_type_check
def is_past(first, start, rows: tl.constexpr, step: tl.constexpr, is_key: tl.constexpr = False):  # noqa: FBT002
    """Return a mask [rows, step], True where query ``first + row`` may attend to key ``start + column``.

    With ``is_key``, rows are keys and columns are queries. Positions within the tiles are compared, because the
    compiler would compare absolute positions in 64 bits.
    """
    ahead = tl.arange(0, rows)[:, None] - tl.arange(0, step)[None, :]
    if is_key:
        return ahead <= start - first
    return ahead >= start - first


@triton.jit
@no_type_check
def head_and_row(length, rows: tl.constexpr, is_key: tl.constexpr):
    """Return the head and the first row of this GPU program; within a head, the tiles that take longest come first.

    All programs lie on the first axis of the grid, since only this axis can be longer than 65,535.
    """
    tiles = tl.cdiv(length, rows)
    tile = tl.program_id(0) % tiles
    if not is_key:
        tile = tiles - 1 - tile
    return (tl.program_id(0) // tiles).to(tl.int64), tile * rows


@triton.jit
@no_type_check
def through_norm(d_unit, unit, norms):
    """Compute the gradient with respect to vectors; ``d_unit`` is the gradient with respect to their unit vectors."""
    along = tl.where(norms > 1e-12, tl.sum(d_unit * unit, axis=1), 0.0)
    return (d_unit - along[:, None] * unit) / norms[:, None]


@triton.jit
@no_type_check
def guarded(totals, delta, is_clamped: tl.constexpr):
    """Keep denominators from 0: raise them to at least ``delta`` if ``is_clamped``, otherwise add ``delta``."""
    if is_clamped:
        return tl.maximum(totals, delta)
    return totals + delta


def padded(width: int) -> int:
    """Round a width up to a power of two of at least 16, the smallest width that a matrix instruction takes."""
    return max(16, int(triton.next_power_of_2(width)))


def num_tiles(length: int, rows: int = ROWS) -> int:
    """Return the number of tiles, or segments, of ``rows`` rows that cover the length."""
    return -(-length // rows)


def precision(dtype: torch.dtype) -> str:
    """Choose the rounding of the operands of matrix products; sums are always float32.

    ``bf16`` is for bfloat16 inputs. ``tf32`` is for float16 inputs, since TF32 has as many digits as float16 and a
    larger range, and for float32 inputs if PyTorch may use TF32 too. ``bf16x6`` is for other float32 inputs. It splits
    each number into three bfloat16 parts that together have all its digits, so that tensor cores can multiply them.
    Triton's own precisions for float32 are not used on a GPU: ``ieee`` does not use tensor cores, and ``tf32x3`` loses
    accuracy and takes more registers. In Triton's interpreter, which cannot multiply bfloat16, ``ieee`` replaces
    ``bf16x6``.
    """
    if dtype == torch.bfloat16:
        return "bf16"
    if dtype == torch.float16 or torch.backends.cuda.matmul.allow_tf32:
        return "tf32"
    return "ieee" if IS_INTERPRETED.value else "bf16x6"


def step(precision: str) -> int:
    """Return how many keys a tile of queries reads at once, or how many queries a tile of keys reads at once."""
    return ROWS if precision == "bf16" else ROWS // 2


def by_head(x: Tensor) -> Tensor:
    """Reshape [..., length, width] to contiguous [heads, length, width]."""
    return flattened(x).contiguous()


def segment_length(features: int, value_dim: int, gram_width: int) -> int:
    """Estimate the length up to which scores are cheaper than a state, rounded to a multiple of ``SEGMENTS``.

    ``features`` is the number of features, and ``gram_width`` the number of multiplications per score. At length L, the
    causal half of the scores takes L (gram_width + value_dim + 1) flops per token. Reading and updating a state
    [features, value_dim + 1] takes 4 features (value_dim + 1) flops per token. The result is at least 2 ``SEGMENTS``.
    """
    crossing = 4 * (value_dim + 1) * features / (gram_width + value_dim + 1)
    return SEGMENTS * max(2, math.ceil(crossing / SEGMENTS - 0.5))


@triton.jit
@no_type_check
def saturated_sum(x, y, z):
    """Compute x y + z, clamped to [0, 1], in one instruction."""
    if IS_INTERPRETED:
        bounded = tl.minimum(tl.maximum(x * y + z, 0.0), 1.0)
    else:
        bounded = tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", [x, y, z], dtype=tl.float32, is_pure=True, pack=1
        )  # fmt: skip
    return bounded


@triton.jit
@no_type_check
def hidden(x):
    """Return a 32-bit integer unchanged, in a way that the compiler cannot see through.

    This makes the compiler compute values that depend on the integer again, instead of keeping these values in
    registers.
    """
    if not IS_INTERPRETED:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)
    return x


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def running_kernel(
    sums_ptr, running_ptr, num_states, width, is_reversed: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr
):  # fmt: skip
    """Compute the running sums of a head's states, [states, width], for some columns, forwards or backwards."""
    head = tl.program_id(0).to(tl.int64)
    row, column = tl.arange(0, rows), tl.program_id(1) * columns + tl.arange(0, columns)
    carried = tl.zeros((columns,), dtype=tl.float32)
    for first in range(0, num_states, rows):
        state = num_states - 1 - first - row if is_reversed else first + row
        places = (head * num_states + state[:, None]) * width + column[None, :]
        is_inside = (row[:, None] < num_states - first) & (column[None, :] < width)
        sums = tl.load(sums_ptr + places, mask=is_inside, other=0.0)
        tl.store(running_ptr + places, tl.cumsum(sums, axis=0) + carried[None, :], mask=is_inside)
        carried += tl.sum(sums, axis=0)


def running_sums(sums: Tensor, precision: str, *, is_reversed: bool = False) -> Tensor:
    """Compute running sums over the axis ``states`` of [heads, states, ...], forwards or backwards.

    Sums are computed in float32. With precision ``bf16``, the result is a new bfloat16 tensor; otherwise ``sums`` is
    overwritten.
    """
    running = torch.empty_like(sums, dtype=torch.bfloat16) if precision == "bf16" else sums
    heads, num_states, *of_state = sums.shape
    width = math.prod(of_state)
    if num_states:
        with torch.cuda.device_of(sums):
            running_kernel[heads, num_tiles(width, RUNNING_TILES["columns"])](
                sums, running, num_states, width, is_reversed=is_reversed, **RUNNING_TILES
            )  # fmt: skip
    return running
