"""What plain loops over tokens need, with which tests compare mechanisms."""

from typing import Any, TypeVar

import torch
from torch import Tensor

from synthbench.layers import RmsNorm
from synthbench.mechanisms import Attention, Mechanism, condition_options
from synthbench.positions.rope import Rope

M = TypeVar("M", bound=Mechanism)


def built(mechanism: type[M], generator: torch.Generator, condition: str = "stock", **options: Any) -> M:
    """Two heads of six channels in float64, in a condition; gains are moved away from 1."""
    options = {**condition_options(mechanism, condition), **options}
    net = mechanism(model_dim=12, num_heads=2, generator=generator, **options).double()
    for module in net.modules():
        if isinstance(module, RmsNorm):
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
    return net


def agree(net: Mechanism, x: Tensor, plain: Tensor) -> None:
    """``net(x)`` is ``plain``, and so are the gradients by the tokens and all parameters."""
    leaves, out = [x, *net.parameters()], net(x)
    fast, slow = (
        torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True, materialize_grads=True) for y in (out, plain)
    )

    torch.testing.assert_close(out, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(net.forward_last(x), plain[:, -1:], rtol=1e-9, atol=1e-9)


def turn(net: Attention, length: int) -> None:
    """Let RoPE turn what it turns, by angles to the last bit."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    position = Rope(model_dim=net.model_dim, num_heads=net.num_heads, length=length)
    net.turn_by([position.of_width(width).rotation(None) for width in net.turned_widths])
    torch.set_default_dtype(before)


def rotary_angles(length: int, width: int) -> Tensor:
    """What RoPE multiplies the planes of a head by, read as complex numbers: [length, width / 2]."""
    planes = torch.arange(width // 2, dtype=torch.float64)
    angles = torch.arange(length).double()[:, None] * 10000.0 ** (-2 * planes / width)
    return torch.polar(torch.ones_like(angles), angles)


def heads_of(x: Tensor) -> Tensor:
    """Two heads, [batch, 2, length, channels / 2]."""
    cut: Tensor = x.unflatten(-1, (2, -1)).transpose(1, 2)
    return cut


def merged(net: Attention, outs: list[Tensor]) -> Tensor:
    """The outputs [batch, heads, channels] of every token, projected back to [batch, length, width]."""
    projected: Tensor = net.out(torch.stack(outs, dim=1).flatten(-2))
    return projected


def summed_taps(x: Tensor, taps: Tensor) -> Tensor:
    """Every token times the first taps, the one before it times the second, and so on, [batch, length, channels]."""
    rows = [
        torch.stack([tap * x[:, t - back] for back, tap in enumerate(taps) if back <= t]).sum(0)
        for t in range(x.shape[1])
    ]
    return torch.stack(rows, dim=1)


def divide_by_rms(heads: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Every head's output over its root mean square."""
    return heads / (heads.square().mean(-1, keepdim=True) + epsilon).sqrt()


def unit(x: Tensor) -> Tensor:
    """Vectors of length 1."""
    normal: Tensor = x / x.norm(dim=-1, keepdim=True)
    return normal
