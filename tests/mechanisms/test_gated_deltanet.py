from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.mechanisms.gated_deltanet import GatedDeltanet
from tests.mechanisms.loops import agree, divide_by_rms, heads_of, merged, unit


@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 75])
def test_forward_is_the_gated_delta_rule_step_by_step(
    length: int,
    eigenvalues: Literal["zero-one", "signed"],
    top: int,
    normal: Callable[..., Tensor],
    generator: torch.Generator,
) -> None:
    net = GatedDeltanet(model_dim=12, num_heads=2, eigenvalues=eigenvalues, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in silu(net.qkv(x)).chunk(3, dim=-1))
    q, k = unit(q), unit(k)
    beta = top * (x @ net.rate.weight).sigmoid()
    alpha = torch.exp(-net.log_rate.exp().flatten() * softplus(x @ net.gate.weight + net.gate_bias.flatten()))
    state, outs, eye = torch.zeros(3, 2, 6, 6, dtype=torch.float64), [], torch.eye(6, dtype=torch.float64)
    for t in range(length):
        b, a, k_t = beta[:, t, :, None, None], alpha[:, t, :, None, None], k[:, :, t, :, None]
        state = a * (eye - b * k_t @ k_t.mT) @ state + b * k_t * v[:, :, t, None, :]
        outs.append(divide_by_rms(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state)))

    agree(net, x, merged(net, outs))


def test_gates_begin_in_the_published_ranges(generator: torch.Generator) -> None:
    net = GatedDeltanet(model_dim=256, num_heads=256, generator=generator)
    step, rate = softplus(net.gate_bias), net.log_rate.exp()

    assert 1e-3 - 1e-6 <= step.min() < 2e-3
    assert 0.05 < step.max() <= 0.1 + 1e-6
    assert rate.min() < 1
    assert 14 < rate.max() <= 16
