"""Shared code of the kernels: tiles of rows, unit vectors, the guarded division, and how PyTorch launches them.

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
from triton.language.extra.cuda import libdevice

from synthbench.forms.linear import flattened

ROWS = 64
"""Queries or keys a tile: the smallest that fills a warp group's matrix instruction."""

SEGMENTS = 128
"""Segments are a multiple of it: the rows of the largest tile."""

RUNNING_TILES = {"rows": 16, "columns": 128, "num_warps": 1}
"""States and columns that a program adds up at once: enough to be read while others are waited for."""

IS_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)

VARYING = ("length", "num_states")
"""Numbers that Triton compiles a kernel for once: else again where one is 1, and again where 16 divides it."""


@triton.jit
@no_type_check
def load_tile(
    start_ptr, first, length, width: tl.constexpr, num_rows: tl.constexpr, num_columns: tl.constexpr,
    may_end: tl.constexpr = True,  # noqa: FBT002 - Triton's, and named where it is given
    is_again: tl.constexpr = False,  # noqa: FBT002
    repeats: tl.constexpr = 1,
):  # fmt: skip
    """Rows ``first`` and on of a [length, width] matrix, all of which are there unless it may end before.

    Places in it are added up in 32 bits, which suffice: it is one head's, or smaller, see ``MAX_LENGTH``.
    Where they are read again, the compiler must not keep them, and what is made of them, from the first time. They may
    stand side by side, as often as is said.
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
    """2^x. Triton's own takes four instructions, not one, so that denormal numbers come out right."""
    if IS_INTERPRETED:  # noqa: SIM108 - Triton compiles both sides of an expression
        power = tl.exp2(x)
    else:
        power = libdevice.exp2(x)
    return power


@triton.jit
@no_type_check
def leading(x):
    """A number's first eight binary digits, those of bfloat16."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def multiply_bfloat16(x, y, sums):
    """Add x @ y to sums, with operands rounded to bfloat16."""
    return tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16), sums)


@triton.jit
@no_type_check
def product(x, y, precision: tl.constexpr):
    """Multiply x @ y, with sums in float32; see :func:`precision`."""
    if precision == "bf16":
        out = tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16))
    elif precision == "bf16x6":
        # Three times eight digits are all of a number's; products beyond the 24th digit are left out.
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
    """Write what :func:`load_tile` would read, rounded to the tensor's type."""
    rows, columns = tl.arange(0, num_rows), tl.arange(0, num_columns)
    places = start_ptr + (first * width + (rows[:, None] * width + columns[None, :]))
    tl.store(places, tile, mask=(rows[:, None] < length - first) & (columns[None, :] < width))


@triton.jit
@no_type_check
def load_column(start_ptr, first, length, num_rows: tl.constexpr):
    """One number per row, 0 beyond the length."""
    rows = tl.arange(0, num_rows)
    return tl.load(start_ptr + first + rows, mask=rows < length - first, other=0.0)


@triton.jit
@no_type_check
def store_column(start_ptr, column, first, length, num_rows: tl.constexpr):
    """Write what :func:`load_column` would read."""
    rows = tl.arange(0, num_rows)
    tl.store(start_ptr + first + rows, column, mask=rows < length - first)


@triton.jit
@no_type_check
def norms_of(tile):
    """Lengths of the rows, at least 1e-12."""
    tile = tile.to(tl.float32)
    return tl.maximum(tl.sqrt(tl.sum(tile * tile, axis=1)), 1e-12)


@triton.jit
@no_type_check
def is_past(first, start, rows: tl.constexpr, step: tl.constexpr, is_key: tl.constexpr = False):  # noqa: FBT002
    """Mask of the ``step`` keys from ``start`` that ``rows`` queries from ``first`` may attend to, or keys and queries.

    Places within the tiles are compared, which the compiler knows: it would compare sums of them in 64 bits.
    """
    ahead = tl.arange(0, rows)[:, None] - tl.arange(0, step)[None, :]
    if is_key:
        return ahead <= start - first
    return ahead >= start - first


@triton.jit
@no_type_check
def head_and_row(length, rows: tl.constexpr, is_key: tl.constexpr):
    """Head and first row of this program; those come first that most rows of the other side are for.

    Programs are in one row, since only the first axis of a grid is longer than 65,535.
    """
    tiles = tl.cdiv(length, rows)
    tile = tl.program_id(0) % tiles
    if not is_key:
        tile = tiles - 1 - tile
    return (tl.program_id(0) // tiles).to(tl.int64), tile * rows


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
    """Rounding of the operands of products; their sums are float32.

    ``bf16`` is for bfloat16 inputs. ``tf32`` is for float32 inputs where PyTorch may round its own products this way,
    and for float16: TF32 has as many digits and a larger range. ``bf16x6``, for float32, splits each number into three
    bfloat16 parts that together have all its digits, so that tensor cores can multiply them. Triton's ``ieee`` does not
    use tensor cores, and ``tf32x3`` loses accuracy and takes more registers. The interpreter cannot multiply bfloat16.
    """
    if dtype == torch.bfloat16:
        return "bf16"
    if dtype == torch.float16 or torch.backends.cuda.matmul.allow_tf32:
        return "tf32"
    return "ieee" if IS_INTERPRETED.value else "bf16x6"


def step(precision: str) -> int:
    """Rows of the other side that a tile of ``ROWS`` meets at once: fewer where operands take more registers."""
    return ROWS if precision == "bf16" else ROWS // 2


def by_head(x: Tensor) -> Tensor:
    """[..., length, width] as contiguous [heads, length, width]."""
    return flattened(x).contiguous()


def segment_length(features: int, value_dim: int, gram_width: int) -> int:
    """Tokens up to which scores are cheaper than a state, in whole tiles and at least two of them.

    By arithmetic, not measured. Half of L rows of scores take L (gram_width + value_dim + 1) flops a token. From here
    on that costs as much as reading and updating a state of features x (value_dim + 1).
    """
    crossing = 4 * (value_dim + 1) * features / (gram_width + value_dim + 1)
    return SEGMENTS * max(2, math.ceil(crossing / SEGMENTS - 0.5))


@triton.jit
@no_type_check
def saturated_sum(x, y, z):
    """Bring x y + z between 0 and 1, in one instruction."""
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
    """A 32-bit integer as it is, but unknown to the compiler, which computes anew what follows from it."""
    if not IS_INTERPRETED:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)
    return x


@triton.jit(do_not_specialize=VARYING)
@no_type_check
def running_kernel(
    sums_ptr, running_ptr, num_states, width, is_reversed: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr
):  # fmt: skip
    """Add up some columns of a head's [states, width] from its first state on, or from its last."""
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
    """Sums [heads, states, ...] up to each state, or from it on, in float32.

    They are kept as products read them: in bfloat16 where those round to it, else in the place of ``sums``.
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
