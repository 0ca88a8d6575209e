from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from synthbench.mechanisms.hgrn2 import Hgrn2


def agree(net: Hgrn2, x: Tensor, plain: Tensor) -> None:
    """``net(x)`` is ``plain``, and so are the gradients by the tokens and all parameters."""
    leaves, out = [x, *net.parameters()], net(x)
    fast, slow = (torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True) for y in (out, plain))

    torch.testing.assert_close(out, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(net.forward_last(x), plain[:, -1:], rtol=1e-9, atol=1e-9)


def heads_of(x: Tensor) -> Tensor:
    cut: Tensor = x.unflatten(-1, (2, -1)).transpose(1, 2)
    return cut


def merged(net: Hgrn2, outs: list[Tensor]) -> Tensor:
    projected: Tensor = net.out(torch.stack(outs, dim=1).flatten(-2))
    return projected


def divide_by_rms(heads: Tensor) -> Tensor:
    return heads / (heads.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize("lower", [0.0, 0.3])
@pytest.mark.parametrize("length", [1, 11, 75])
def test_forward_is_the_gated_recurrence_step_by_step(
    length: int, lower: float, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Hgrn2(model_dim=12, num_heads=2, lower=lower, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    o, f, i = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    g = lower + (1 - lower) * f.sigmoid()
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    for t in range(length):
        state = g[:, :, t, :, None] * state + (1 - g)[:, :, t, :, None] * i[:, :, t, None, :]
        outs.append(divide_by_rms(torch.einsum("bhk,bhkv->bhv", silu(o)[:, :, t], state)))

    agree(net, x, merged(net, outs))
