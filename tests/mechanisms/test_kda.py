"""The first values of its gates; what it computes is tested beside gated-deltanet, which has a gate a head."""

import torch
from torch.nn.functional import softplus

from synthbench.mechanisms.kda import Kda


def test_gates_begin_in_the_published_ranges(generator: torch.Generator) -> None:
    net = Kda(model_dim=256, num_heads=256, generator=generator)
    rate, step = net.log_rate.exp(), softplus(net.gate_bias)

    assert 1 <= rate.min() < 2
    assert 14 < rate.max() <= 16
    assert 1e-3 - 1e-6 <= step.min() < 2e-3
    assert 0.09 < step.max() <= 0.1 + 1e-6
