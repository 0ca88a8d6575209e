import math

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.hyena import Hyena
from tests.mechanisms.loops import check_loop, merged, summed_taps


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
    fused = net.project_in(x)
    if net.own_convolution is not None:
        fused = summed_taps(net.own_convolution, fused)
    u, a, v = fused.chunk(3, dim=-1)
    z, h = a * v, filters_of(net, x.shape[1])
    outs = [
        u[:, t] * (sum(h[t - s] * z[:, s] for s in range(t + 1)) + net.skip.flatten() * z[:, t])
        for t in range(x.shape[1])
    ]
    return merged(net, outs)


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize("length", [1, 9])
def test_forward_is_the_gated_sum_over_all_earlier_tokens(length: int, condition: str) -> None:
    check_loop(Hyena, summed, length, condition, max_length=9, filter_dim=10)
