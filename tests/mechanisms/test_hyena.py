import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.hyena import Hyena


def filters_of(net: Hyena, length: int) -> Tensor:
    """The filter of each channel, value by value: [length, channels]."""
    rows = []
    for t in range(length):
        r, angle = t / (net.max_length - 1), 2 * math.pi * 1e-4 * t / net.max_length
        units = torch.tensor([r, math.cos(angle), -math.sin(angle)], dtype=torch.float64)
        for layer in (net.first, net.second, net.third):
            assert layer.bias is not None
            units = (net.frequency.flatten() * (units @ layer.weight + layer.bias)).sin()
        window = torch.tensor(
            [0.01 ** (r * (1 / 1.5 + (1 / 0.3 - 1 / 1.5) * c / (net.model_dim - 1))) for c in range(net.model_dim)],
            dtype=torch.float64,
        )
        rows.append(units @ net.last.weight * window)
    return torch.stack(rows)


def summed(net: Hyena, x: Tensor) -> Tensor:
    """Each output as the sum over the tokens up to it."""
    u, a, v = net.project_in(x).chunk(3, dim=-1)
    z, h = a * v, filters_of(net, x.shape[1])
    outs = [
        u[:, t] * (sum(h[t - s] * z[:, s] for s in range(t + 1)) + net.skip.flatten() * z[:, t])
        for t in range(x.shape[1])
    ]
    projected: Tensor = net.out(torch.stack(outs, dim=1))
    return projected


@pytest.mark.parametrize("length", [1, 11, 75])
def test_forward_is_the_gated_sum_over_all_earlier_tokens(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Hyena(model_dim=12, num_heads=2, max_length=75, filter_dim=10, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    leaves, out, plain = [x, *net.parameters()], net(x), summed(net, x)
    fast, slow = (torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True) for y in (out, plain))

    torch.testing.assert_close(out, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(net.forward_last(x), plain[:, -1:], rtol=1e-9, atol=1e-9)
