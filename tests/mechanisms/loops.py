"""Plain loops over tokens, with which tests compare mechanisms."""

from typing import Any, TypeVar

import torch
from torch import Tensor

from synthbench.layers import RmsNorm, ShortConvolution, UndecayedParameter
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
    net.turn_by(position.rotations(net.turned_widths, None))
    torch.set_default_dtype(before)


def rotary_angles(length: int, width: int) -> Tensor:
    """The complex factors of RoPE for the planes of a head: [length, width / 2]."""
    planes = torch.arange(width // 2, dtype=torch.float64)
    angles = torch.arange(length).double()[:, None] * 10000.0 ** (-2 * planes / width)
    return torch.polar(torch.ones_like(angles), angles)


def summed_taps(convolution: ShortConvolution, x: Tensor) -> Tensor:
    """A causal convolution, token by token and tap by tap: [batch, length, channels]."""
    rows = []
    for t in range(x.shape[1]):
        rows.append(sum(tap * x[:, t - j] for j, tap in enumerate(convolution.weight) if j <= t))
        if convolution.bias is not None:
            rows[-1] = rows[-1] + convolution.bias
    return torch.stack(rows, dim=1)


@torch.no_grad()
def moved(net: Mechanism, scale: float = 0.3) -> Mechanism:
    """In float64, with every parameter moved: one that begins at 0 or 1 would hide what it does."""
    generator = torch.Generator().manual_seed(1)
    for parameter in net.double().parameters():
        parameter.add_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return net


def bare(unit: type[Mechanism]) -> dict[str, Any]:
    """The options of the condition bare."""
    return dict(unit.bare)


def undecayed(net: Mechanism) -> set[str]:
    """The parameters that weight decay leaves alone."""
    return {name for name, parameter in net.named_parameters() if isinstance(parameter, UndecayedParameter)}


def heads_of(x: Tensor) -> Tensor:
    """Two heads, [batch, 2, length, channels / 2]."""
    cut: Tensor = x.unflatten(-1, (2, -1)).transpose(1, 2)
    return cut


def merged(net: Attention, outs: list[Tensor]) -> Tensor:
    """The outputs [batch, heads, channels] of every token, projected back to [batch, length, width]."""
    projected: Tensor = net.out(torch.stack(outs, dim=1).flatten(-2))
    return projected


def divide_by_rms(heads: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Every head's output over its root mean square."""
    return heads / (heads.square().mean(-1, keepdim=True) + epsilon).sqrt()


def unit(x: Tensor) -> Tensor:
    """Vectors of length 1."""
    normal: Tensor = x / x.norm(dim=-1, keepdim=True)
    return normal


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, alpha: Tensor) -> list[Tensor]:
    """Reads of two heads at every token from a state that decays by ``alpha`` of each channel, then is corrected.

    Keys and queries become unit vectors. ``beta`` is [batch, length, heads]; ``alpha`` is [batch, heads, length,
    channels], or with 1 in place of the channels.
    """
    q, k = unit(q), unit(k)
    state, outs, eye = torch.zeros(3, 2, 6, 6, dtype=torch.float64), [], torch.eye(6, dtype=torch.float64)
    for t in range(q.shape[2]):
        b, k_t = beta[:, t, :, None, None], k[:, :, t, :, None]
        state = (eye - b * k_t @ k_t.mT) @ (alpha[:, :, t, :, None] * state) + b * k_t * v[:, :, t, None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state))
    return outs
