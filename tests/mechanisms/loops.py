"""Plain loops over tokens, with which tests compare mechanisms."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from synthbench.layers import Linear, ShortConvolution
from synthbench.mechanisms import MECHANISMS, Attention, condition_options
from synthbench.mechanisms.based import Based
from synthbench.mechanisms.rewa._operators import WitnessMap
from synthbench.positions.rope import Rope
from synthbench.process import settings_restored
from tests.tensors import mix, normal, with_gradients

M = TypeVar("M", bound=nn.Module)
Loop = Callable[[Any, Tensor], Tensor]
Kernel = Callable[[Any, Tensor, Tensor], Any]


def every(name: str, formula: Callable[..., Any], **values: Sequence[Any]) -> list[Any]:
    """Cases of :func:`check_loop` or :func:`check_kernel`: every value of each argument with all of the others."""
    chosen = [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]
    texts = [" ".join([name, *(getattr(one, "__name__", str(one)) for one in of.values())]) for of in chosen]
    return [pytest.param(name, formula, of, id=text) for of, text in zip(chosen, texts, strict=True)]


def check_loop(
    name: str,
    loop: Loop,
    length: int,
    condition: str = "stock",
    *,
    width: int = 12,
    scale: float = 0.1,
    is_turned: bool = False,
    change: Callable[[Any], object] = lambda _net: None,
    **options: Any,
) -> None:
    """A mechanism in a condition, :func:`built` and changed, computes what a plain loop does; it may be turned by RoPE.

    Every parameter is moved: one that begins at 0 or 1 would hide what it does.
    """
    unit: Any = MECHANISMS[name]
    options = {**condition_options(unit, condition), **options}
    net = moved(built(unit, model_dim=width, **options), scale)
    with torch.no_grad():
        change(net)
    if is_turned:
        turn(net, length)
    x = normal(3, length, width).requires_grad_()
    leaves, plain = [x, *net.parameters()], loop(net, x)

    torch.testing.assert_close(with_gradients(net(x), leaves), with_gradients(plain, leaves), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(net.forward_last(x), plain[:, -1:], rtol=1e-9, atol=1e-9)


def check_kernel(
    name: str, kernel: Kernel, *, length: int = 30, size: float = 1.0, tolerance: float = 1e-9, **options: Any
) -> None:
    """A mechanism attends by its kernel's values of all pairs over their guarded sum, and so are the gradients.

    ``kernel`` maps the mechanism, queries and keys to these values, and ``size`` is that of queries and keys.
    """
    unit: Any = built(MECHANISMS[name], **options)
    is_sum = isinstance(unit, Based) or getattr(unit, "normaliser", "softmax") != "softmax"
    guard, delta = getattr(unit, "guard", "add"), getattr(unit, "delta", 1e-6 if is_sum else 0.0)
    qkv = [
        (factor * normal(2, 2, length, unit.head_dim, seed=seed)).requires_grad_()
        for seed, factor in enumerate((size, size, 1.0))
    ]
    expected = with_gradients(mix(kernel(unit, *qkv[:2]), qkv[2], guard, delta), qkv)

    torch.testing.assert_close(with_gradients(unit.attend(*qkv), qkv), expected, rtol=tolerance, atol=tolerance)


def built(unit: type[M], seed: int = 0, **options: Any) -> M:
    """A mechanism in float64, of two heads and eight channels unless told otherwise."""
    fields: dict[str, Any] = {"model_dim": 8, "num_heads": 2, **options}
    return unit(**fields, generator=torch.Generator().manual_seed(seed)).double()


def turn(net: Attention, length: int) -> None:
    """Let RoPE turn what it turns, by angles to the last bit."""
    with settings_restored():
        torch.set_default_dtype(torch.float64)
        position = Rope(model_dim=net.model_dim, num_heads=net.num_heads, length=length)
        net.turn_by(position.rotations(net.turned_widths, None))


def turned(heads: Tensor, base: float = 10000.0) -> Tensor:
    """Turn the planes of every head, [..., length, width], as RoPE does: by a complex factor."""
    *_, length, width = heads.shape
    planes = torch.arange(width // 2, dtype=torch.float64)
    angles = torch.arange(length).double()[:, None] * base ** (-2 * planes / width)
    factors = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(heads.unflatten(-1, (-1, 2))) * factors).flatten(-2)


def summed_taps(convolution: ShortConvolution, x: Tensor) -> Tensor:
    """A causal convolution, token by token and tap by tap: [batch, length, channels]."""
    rows = []
    for t in range(x.shape[1]):
        rows.append(sum(tap * x[:, t - j] for j, tap in enumerate(convolution.weight) if j <= t))
        if convolution.bias is not None:
            rows[-1] = rows[-1] + convolution.bias
    return torch.stack(rows, dim=1)


@torch.no_grad()
def moved(net: M, scale: float = 0.3, seed: int = 1) -> M:
    """In float64, with every parameter moved: one that begins at 0 or 1 would hide what it does."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in net.double().parameters():
        parameter.add_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return net


def heads_of(x: Tensor) -> Any:
    """Two heads, [batch, 2, length, channels / 2]."""
    return x.unflatten(-1, (2, -1)).transpose(1, 2)


def mapped(maps: WitnessMap, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The witnesses of queries and of keys, which may share their maps."""
    return q @ maps.query, k @ (maps.query if maps.key is None else maps.key)


def merged(net: Any, outs: list[Tensor]) -> Any:
    """The outputs [batch, heads, channels] or [batch, width] of every token, projected to [batch, length, width]."""
    return net.out(torch.stack(outs, dim=1).flatten(2))


def divide_by_rms(heads: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Every head's output over its root mean square."""
    return heads / (heads.square().mean(-1, keepdim=True) + epsilon).sqrt()


def unit(x: Tensor) -> Any:
    """Vectors of length 1."""
    return x / x.norm(dim=-1, keepdim=True)


def convolved_heads(net: Any, x: Tensor) -> list[Tensor]:
    """Queries, keys and values of two heads, after the authors' convolution if the layer has it, and SiLU."""
    fused = net.qkv(x) if net.own_convolution is None else summed_taps(net.own_convolution, net.qkv(x))
    return [heads_of(part) for part in silu(fused).chunk(3, dim=-1)]


def normed_and_gated(net: Any, x: Tensor, outs: list[Tensor], epsilon: float = 1e-5) -> Any:
    """The output of a layer after its recurrence: each head over its root mean square, the gain and the gates."""
    heads = torch.stack(outs, dim=2)
    if net.norm is None:
        heads = divide_by_rms(heads, epsilon)
    else:
        heads = divide_by_rms(heads / 6**0.5, epsilon) * net.norm.weight
    if isinstance(net.out_gate, Linear):
        heads = heads * heads_of(silu(x @ net.out_gate.weight))
    elif net.out_gate is not None:
        few, many, bias = net.out_gate.parameters()
        heads = heads * heads_of((x @ few @ many + bias).sigmoid())
    return merged(net, list(heads.unbind(2)))


def decaying_sum(k: Tensor, v: Tensor, alpha: Tensor, q: Tensor) -> list[Tensor]:
    """Reads of two heads at every token from the sum of all k vᵀ, which decays by ``alpha`` of each channel."""
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    for t in range(q.shape[2]):
        state = alpha[:, :, t, :, None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state))
    return outs


def delta_rule(q: Tensor, keys: list[Tensor], values: list[Tensor], beta: Tensor, alpha: Tensor) -> list[Tensor]:
    """Reads of two heads at every token from a state that decays by ``alpha`` of each channel, then is corrected.

    A token has one correction or several, one after the other, each with a key and a value. Keys and queries become
    unit vectors. ``beta`` is [batch, length, heads, corrections]; ``alpha`` is [batch, heads, length, channels], or
    with 1 in place of the channels.
    """
    state, outs, eye = torch.zeros(3, 2, 6, 6, dtype=torch.float64), [], torch.eye(6, dtype=torch.float64)
    for t in range(q.shape[2]):
        state = alpha[:, :, t, :, None] * state
        for b, k, v in zip(beta[:, t, :, :, None, None].unbind(2), keys, values, strict=True):
            k_t = unit(k)[:, :, t, :, None]
            state = (eye - b * k_t @ k_t.mT) @ state + b * k_t * v[:, :, t, None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", unit(q)[:, :, t], state))
    return outs
