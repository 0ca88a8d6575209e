"""Attention by the exact Yat kernel for long sequences, tile by tile, without any length x length matrix.

A tile contains all pairs of some queries and some keys. With x = q·k, a number a per query and a number b per key, the
kernel is

    K = x² / gap,      gap = max(a + b - 2x, smallest).

The spherical kernel has a = 2 + epsilon and b = 0, the plain kernel a = ‖q‖² + epsilon and b = ‖k‖². The weight of a
pair is K (with softmax: exp(scale K)), divided by the sum of these terms over the query's keys. With softmax, the
largest exponent among the keys processed so far is subtracted from all exponents of a query.

For the backward pass q, k, v, a, b, the outputs and one number per query are kept. If g is the gradient with respect to
the sums of weighted values, the gradient with respect to a weight is g · v - g · out. The derivative of the
kernel is 2x / gap + 2 (x / gap)² with respect to x, and -(x / gap)² with respect to a and to b. Where the gap is held
at ``smallest``, only the term 2x / gap remains.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from synthbench.forms.feature_maps import unit_vectors
from synthbench.forms.kernels import Form
from synthbench.forms.linear import flattened, widened, with_ones
from synthbench.forms.own import own_form
from synthbench.forms.scores import SUM_DELTA
from synthbench.forms.shapes import AnswerRows, KeyRows, Queries, ValueRows


class Tiling(NamedTuple):
    """Size of a tile: the numbers of heads, queries and keys that are processed at once."""

    heads: int
    queries: int
    keys: int


def tiling(device: torch.device) -> Tiling:
    """Choose the size of tiles: small on a CPU, to fit a core's caches, and large on a GPU, to save kernel launches."""
    # Measured on a CPU at length 4096, 8 heads of 32, one thread: 232 ms forward, 250 to 270 with tiles twice or half
    # as large. On a GPU estimated, not measured: 64 MiB per tile in float32.
    return Tiling(8, 128, 256) if device.type == "cpu" else Tiling(16, 1024, 1024)


def of(unit: Any) -> Form | None:
    """Return a function that takes q, k and v and computes, tile by tile, the attention of the mechanism ``unit``.

    The result is None if the normaliser is ``softermax``, or if the mechanism's class does not itself declare the
    method ``yat_sides``.
    """
    sides_of = own_form(unit, "yat_sides")
    if sides_of is None or unit.normaliser == "softermax":
        return None
    return partial(attend, sides_of, Weighting(unit.normaliser, getattr(unit, "scale", 1.0)))


class Weighting(NamedTuple):
    """Normaliser and scale, which turn the kernel's values into weights."""

    normaliser: Literal["softmax", "sum"]
    scale: float = 1.0
    """Factor of the kernel's values; 1 with the normaliser ``sum``, since a factor would cancel there."""


class Sides(NamedTuple):
    """Inputs of the kernel (q·k)² / max(a + b - 2 q·k, smallest), each [..., length, width]; a and b have width 1."""

    q: Tensor
    k: Tensor
    a: Tensor
    b: Tensor | None
    """None if b is 0 for every key."""


SidesOf = Callable[[Tensor, Tensor], tuple[Sides, float]]
"""Function from q and k to the inputs of the kernel and its smallest gap."""


def spherical(unit: Any, q: Tensor, k: Tensor) -> tuple[Sides, float]:
    """Return the inputs and the smallest denominator of the kernel x² / max(2 + epsilon - 2x, 1e-6), with cosine x."""
    queries, keys = unit_vectors(q), unit_vectors(k)
    a = queries.new_full((*queries.shape[:-1], 1), 2 + unit.epsilon)
    return Sides(queries, keys, a, None), 1e-6


def plain(unit: Any, q: Tensor, k: Tensor) -> tuple[Sides, float]:
    """Return the inputs and the smallest denominator of the kernel (q·k)² / (‖q - k‖² + epsilon)."""
    a, b = (x.square().sum(-1, keepdim=True) for x in (q, k))
    return Sides(q, k, a + unit.epsilon, b), unit.epsilon


def attend(sides_of: SidesOf, weighting: Weighting, q: Queries, k: KeyRows, v: ValueRows) -> AnswerRows:
    """Attend by a Yat kernel, one tile (a block of queries and keys) after the other.

    If there are fewer queries than keys, the queries belong to the last positions. Inputs in half precision are
    converted to float32, and the outputs are rounded once, at the end.
    """
    sides, smallest = sides_of(widened(q), widened(k))
    flat = (None if x is None else flattened(x) for x in (widened(v), *sides))
    out: Tensor = _Tiled.apply(weighting, smallest, *flat)  # type: ignore[no-untyped-call]
    return out.view(*v.shape[:-2], *out.shape[-2:]).to(v.dtype)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weighting: Weighting,
        smallest: float,
        v: Tensor,
        q: Tensor,
        k: Tensor,
        a: Tensor,
        b: Tensor | None,
    ) -> Tensor:
        values, space = with_ones(v), _Workspace(2, q)
        out, totals = v.new_empty(*q.shape[:-1], v.shape[-1]), torch.empty_like(a)
        for heads, rows in _query_tiles(q):
            sums = values.new_zeros(*q[heads, rows].shape[:-1], values.shape[-1])
            largest = sums.new_full((*sums.shape[:-1], 1), -torch.inf)
            for columns, diagonal in _key_tiles(rows, q, k):
                inner, ratios = space.filled(Sides(q, k, a, b), smallest, heads, rows, columns)
                weights = inner.mul_(torch.div(inner, ratios, out=ratios))
                if weighting.normaliser == "softmax":
                    exponents = _hide(weights.mul_(weighting.scale), diagonal, -torch.inf)
                    before, largest = largest, torch.maximum(largest, exponents.amax(-1, keepdim=True))
                    sums.mul_((before - largest).exp_())
                    exponents.sub_(largest).exp_()
                else:
                    _hide(weights, diagonal, 0.0)
                sums.baddbmm_(weights, values[heads, columns])
            numerators, denominators = sums[..., :-1], sums[..., -1:]
            if weighting.normaliser == "softmax":
                totals[heads, rows] = largest + denominators.log()
            else:
                denominators = totals[heads, rows] = denominators + SUM_DELTA
            out[heads, rows] = numerators / denominators
        ctx.weighting, ctx.smallest = weighting, smallest
        ctx.save_for_backward(q, k, v, a, b, out, totals)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, a, b, out, totals = ctx.saved_tensors
        space = _Workspace(3, q)
        is_softmax = ctx.weighting.normaliser == "softmax"
        d_q, d_k, d_v, d_a = (torch.zeros_like(x) for x in (q, k, v, a))
        d_b = None if b is None else torch.zeros_like(b)
        g = d_out if is_softmax else d_out / totals
        g_total = -(g * out).sum(-1, keepdim=True)
        for heads, rows in _query_tiles(q):
            for columns, diagonal in _key_tiles(rows, q, k):
                inner, ratios, d_kernel = space.filled(Sides(q, k, a, b), ctx.smallest, heads, rows, columns)
                is_held = ratios <= ctx.smallest
                weights = inner.mul_(torch.div(inner, ratios, out=ratios))
                torch.baddbmm(g_total[heads, rows], g[heads, rows], v[heads, columns].mT, out=d_kernel)
                if is_softmax:
                    weights.mul_(ctx.weighting.scale).sub_(totals[heads, rows]).exp_()
                    d_kernel.mul_(_hide(weights, diagonal, 0.0)).mul_(ctx.weighting.scale)
                else:
                    _hide(weights, diagonal, 0.0)
                    _hide(d_kernel, diagonal, 0.0)
                d_v[heads, columns].baddbmm_(weights.mT, g[heads, rows])
                shallow = d_kernel.mul_(ratios)
                steep = ratios.masked_fill_(is_held, 0).mul_(shallow)
                d_a[heads, rows] -= steep.sum(-1, keepdim=True)
                if d_b is not None:
                    d_b[heads, columns] -= steep.sum(-2).unsqueeze(-1)
                d_inner = shallow.add_(steep)
                d_q[heads, rows].baddbmm_(d_inner, k[heads, columns], alpha=2)
                d_k[heads, columns].baddbmm_(d_inner.mT, q[heads, rows], alpha=2)
        return None, None, d_v, d_q, d_k, d_a, d_b


class _Workspace:
    """Memory that all tiles reuse: fresh memory for each tile would take as much time as the computation."""

    def __init__(self, count: int, like: Tensor) -> None:
        self.buffers = like.new_empty(count, math.prod(tiling(like.device)))

    def filled(self, sides: Sides, smallest: float, heads: slice, rows: slice, columns: slice) -> list[Tensor]:
        """View every buffer as one tile, [heads, queries, keys], and fill the first two buffers.

        The first buffer gets the inner products of queries and keys, and the second the gaps (denominators of the
        kernel).
        """
        q, k = sides.q[heads, rows], sides.k[heads, columns]
        shape = len(q), q.shape[1], k.shape[1]
        inner, gaps, *others = (buffer[: math.prod(shape)].view(shape) for buffer in self.buffers)
        torch.bmm(q, k.mT, out=inner)
        torch.add(sides.a[heads, rows], inner, alpha=-2, out=gaps)
        if sides.b is not None:
            gaps.add_(sides.b[heads, columns].mT)
        return [inner, gaps.clamp_(min=smallest), *others]


def _hide(pairs: Tensor, diagonal: int | None, value: float) -> Tensor:
    """Overwrite with ``value``, in place, all pairs whose key comes after the query."""
    if diagonal is None:
        return pairs
    if value == 0:
        return pairs.tril_(diagonal)
    return pairs.masked_fill_(
        torch.ones(pairs.shape[-2:], dtype=torch.bool, device=pairs.device).triu(diagonal + 1), value
    )


def _query_tiles(q: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield the slices of heads and of queries that form each tile."""
    sizes = tiling(q.device)
    for head in range(0, q.shape[0], sizes.heads):
        for start in range(0, q.shape[1], sizes.queries):
            yield slice(head, head + sizes.heads), slice(start, min(start + sizes.queries, q.shape[1]))


def _key_tiles(rows: slice, q: Tensor, k: Tensor) -> Iterator[tuple[slice, int | None]]:
    """Yield slices of keys, up to the last query in ``rows``, each with a diagonal of the tile.

    Above this diagonal, keys come after the query and must be masked. If the tile needs no mask, the diagonal is None.
    """
    size, earlier = tiling(q.device).keys, k.shape[1] - q.shape[1]
    end = rows.stop + earlier
    for start in range(0, end, size):
        columns = slice(start, min(start + size, end))
        diagonal = rows.start + earlier - start
        yield columns, None if columns.stop - start <= diagonal + 1 else diagonal
