"""Attention by PyTorch's FlexAttention, for scores that are a function of one inner product a pair.

FlexAttention takes the softmax of whatever is computed from the inner product of a query and a key, and compiles all of
it to one program that never holds length x length. A kernel K over its sum is the softmax of log K; the 1e-6 that is
added to the sum is a factor of the outputs, sigmoid(l - log 1e-6) with l the logarithm of the sum.

Compiled, it attends forward and backward on CUDA; on a CPU PyTorch has no backward pass of it, and no l. Not compiled,
it holds all scores, and serves to test what is compiled. Mechanisms do not choose it: it has not been timed on a GPU.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention
from torch.nn.functional import pad

from synthbench.forms.kernels import Form
from synthbench.forms.linear import widened
from synthbench.forms.own import own_form
from synthbench.forms.scores import SUM_DELTA
from synthbench.forms.shapes import KeyHeads, ValueHeads
from synthbench.forms.yat_tiles import SidesOf
from synthbench.mechanisms.base import ScoreAttention
from synthbench.mechanisms.rewa import _geometry, _operators
from synthbench.mechanisms.rewa.rewa_euclidean import RewaEuclidean
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.mechanisms.rewa.rewa_hyperbolic import RewaHyperbolic
from synthbench.mechanisms.rewa.rewa_operator import RewaOperator
from synthbench.mechanisms.rewa.rewa_spherical import RewaSpherical
from synthbench.mechanisms.softmax import Softmax

Program = Callable[..., Any]
"""FlexAttention, compiled or not."""

TINY = 1e-36
"""Added to a kernel before its logarithm, whose gradient at 0 would be infinite."""

GEOMETRIC = (RewaGeometric, RewaEuclidean, RewaSpherical, RewaHyperbolic)
"""Those that differ by the geometries that are present, which may be one."""

LEAST_WIDTH = 16
"""Narrower queries, keys and values are padded, as are those whose width is no power of two."""


class Pairing(NamedTuple):
    """What the score of a query and a key is computed from, and nothing else.

    PyTorch 2.13 has no backward pass where a number with a gradient is there that the score does not depend on
    (https://github.com/pytorch/pytorch/pull/188860).
    """

    q: Tensor
    """[..., length, width], like ``k``; the inner product is taken of these."""
    k: Tensor
    by_query: tuple[Tensor, ...]
    """Further numbers of a query, each [..., length]."""
    by_key: tuple[Tensor, ...]
    score: Callable[..., Tensor]
    """From an inner product, the numbers of the query and those of the key."""


PairingOf = Callable[[Tensor, Tensor], Pairing]


def runs_on(device: torch.device) -> bool:
    """Whether PyTorch compiles it for this device, forward and backward."""
    return device.type == "cuda"


def compiled() -> Program:
    """FlexAttention as one program for the shapes that it is called with; an error if it cannot be one.

    Programs of before are forgotten, since PyTorch keeps only a few of one function.
    """
    torch.compiler.reset()
    program: Program = torch.compile(flex_attention, fullgraph=True, dynamic=False)
    return program


def of(unit: ScoreAttention, program: Program) -> Form | None:
    """The form of this mechanism that ``program`` computes; None if its scores take more than one inner product."""
    pairing_of = pairing(unit)
    return None if pairing_of is None else partial(attend, unit, pairing_of, program)


def pairing(unit: ScoreAttention) -> PairingOf | None:
    """How the scores of this mechanism come from inner products; None if they take more than one a pair.

    Classes are compared, not instances: what inherits from one of these may have other scores.
    """
    kind = type(unit)
    if kind is Softmax:
        return _scaled
    if (sides_of := own_form(unit, "yat_sides")) is not None:
        return partial(_yat, sides_of, getattr(unit, "scale", 1.0))
    if isinstance(unit, RewaGeometric) and kind in GEOMETRIC and len(unit.metric.witnesses.widths) == 1:
        return partial(_distance, unit)
    return partial(_operator, unit) if isinstance(unit, RewaOperator) and kind is RewaOperator else None


def attend(
    unit: ScoreAttention, pairing_of: PairingOf, program: Program, q: KeyHeads, k: KeyHeads, v: ValueHeads
) -> ValueHeads:
    """Attend in float32, or in float64 where that is what comes."""
    pairs = pairing_of(widened(q), widened(k))
    # Copies, since PyTorch's compiler drops the gradient of a view that a score reads (seen with torch 2.13).
    by_query, by_key = ([_of_heads(x, 2).clone() for x in numbers] for numbers in (pairs.by_query, pairs.by_key))
    score, normaliser, power = pairs.score, unit.normaliser, unit.softermax_power

    def log_weight(inner: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        of_pair = score(inner, *(x[batch, head, i] for x in by_query), *(x[batch, head, j] for x in by_key))
        return of_pair if normaliser == "softmax" else power * (of_pair + TINY).log()

    inputs = (_padded(_of_heads(x, 3)) for x in (pairs.q, pairs.k, widened(v)))
    causal = _causal(q.shape[-2], q.device)
    if normaliser == "softmax":
        out = program(*inputs, score_mod=log_weight, block_mask=causal, scale=1.0)
    else:
        mixed, beside = program(
            *inputs, score_mod=log_weight, block_mask=causal, scale=1.0, return_aux=AuxRequest(lse=True)
        )
        out = mixed * (beside.lse - math.log(SUM_DELTA)).sigmoid().unsqueeze(-1)
    attended: Tensor = out[..., : v.shape[-1]].reshape(v.shape).to(v.dtype)
    return attended


def _scaled(q: Tensor, k: Tensor) -> Pairing:
    root = math.sqrt(q.shape[-1])
    return Pairing(q, k, (), (), lambda inner: inner / root)


def _yat(sides_of: SidesOf, scale: float, q: Tensor, k: Tensor) -> Pairing:
    sides, smallest = sides_of(q, k)

    def score(inner: Tensor, a: Tensor, b: Tensor | float = 0.0) -> Tensor:
        return scale * inner.square() / (a + b - 2 * inner).clamp(min=smallest)

    by_key = () if sides.b is None else (sides.b.squeeze(-1),)
    return Pairing(sides.q, sides.k, (sides.a.squeeze(-1),), by_key, score)


def _distance(unit: RewaGeometric, q: Tensor, k: Tensor) -> Pairing:
    metric, power = unit.metric, unit.power
    (geometry,) = metric.witnesses.widths
    x, y = metric.witnesses.points(geometry, q, "query"), metric.witnesses.points(geometry, k, "key")
    rate = _by_row(metric.weight(geometry) / metric.tau(), x)
    if geometry == "spherical":
        return Pairing(x, y, (rate,), (), lambda inner, rate: -rate * _operators.arc(inner) ** power)

    def score(inner: Tensor, rate: Tensor, x_norm: Tensor, y_norm: Tensor) -> Tensor:
        distance = _operators.distance(inner, x_norm + y_norm, power=1)
        if geometry == "hyperbolic":
            distance = _geometry.poincare_distance(distance, (1 - x_norm) * (1 - y_norm))
        return -rate * distance**power

    return Pairing(x, y, (rate, x.square().sum(-1)), (y.square().sum(-1),), score)


def _operator(unit: RewaOperator, q: Tensor, k: Tensor) -> Pairing:
    power = unit.power
    pairs = _operators.factors(unit.witness(q, "query"), unit.r), _operators.factors(unit.witness(k, "key"), unit.r)
    x, y = (_operators.operators(pair).flatten(-2) for pair in pairs)
    x_norms, y_norms = (_operators.hilbert_schmidt_norms(pair) for pair in pairs)

    def score(inner: Tensor, rate: Tensor, x_norm: Tensor, y_norm: Tensor) -> Tensor:
        return -rate * _operators.distance(inner, x_norm + y_norm, power)

    return Pairing(x, y, (_by_row(1 / unit.temperature(), x), x_norms), (y_norms,), score)


def _by_row(of_head: Float[Tensor, "*members heads 1 1"], x: Float[Tensor, "*batch heads length width"]) -> Tensor:
    """A number of every head as one of every token."""
    return of_head[..., 0].expand(x.shape[:-1])


def _of_heads(x: Tensor, num_last: int) -> Tensor:
    """Axes before the heads as one: the last ``num_last`` are heads, length and so on."""
    return x.reshape(-1, *x.shape[-num_last:])


def _padded(x: Tensor) -> Tensor:
    """Zeros beside the columns, which change no inner product."""
    width = max(LEAST_WIDTH, 2 ** math.ceil(math.log2(x.shape[-1])))
    return pad(x, (0, width - x.shape[-1]))


@lru_cache(maxsize=8)
def _causal(length: int, device: torch.device) -> BlockMask:
    return create_block_mask(lambda _batch, _head, i, j: i >= j, None, None, length, length, device=device)
