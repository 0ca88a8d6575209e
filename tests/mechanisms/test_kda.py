from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.mechanisms.kda import Kda
from tests.mechanisms.loops import agree, built, delta_rule, divide_by_rms, heads_of, merged, summed_taps


@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 75])
def test_bare_is_the_delta_rule_with_a_gate_a_channel_step_by_step(
    length: int,
    eigenvalues: Literal["zero-one", "signed"],
    top: int,
    normal: Callable[..., Tensor],
    generator: torch.Generator,
) -> None:
    net = built(Kda, generator, "bare", eigenvalues=eigenvalues)
    x = normal(3, length, 12).requires_grad_()

    outs = reads(net, x, silu(net.qkv(x)), top)
    agree(net, x, merged(net, [divide_by_rms(out) for out in outs]))


@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 2, 75])
def test_stock_convolves_what_it_projects_and_gates_what_it_normed(
    length: int,
    eigenvalues: Literal["zero-one", "signed"],
    top: int,
    normal: Callable[..., Tensor],
    generator: torch.Generator,
) -> None:
    net = built(Kda, generator, eigenvalues=eigenvalues)
    assert net.own_convolution is not None
    assert net.norm is not None
    assert net.out_gate is not None
    x = normal(3, length, 12).requires_grad_()

    outs = reads(net, x, silu(summed_taps(net.own_convolution, net.qkv(x))), top)
    few, many, bias = net.out_gate.parameters()
    gates = heads_of((x @ few @ many + bias).sigmoid()).unbind(2)
    normed = [divide_by_rms(out / 6**0.5) * net.norm.weight for out in outs]
    agree(net, x, merged(net, [out * gate for out, gate in zip(normed, gates, strict=True)]))


def reads(net: Kda, x: Tensor, fused: Tensor, top: int) -> list[Tensor]:
    """Each head's output before the norm at every token, from q, k and v side by side."""
    beta = top * (x @ net.rate.weight).sigmoid()
    steps = softplus(heads_of(x @ net.gate_in.weight @ net.gate_out.weight) + net.gate_bias)
    q, k, v = map(heads_of, fused.chunk(3, dim=-1))
    return delta_rule(q, k, v, beta, torch.exp(-net.log_rate.exp() * steps))


def test_gates_begin_in_the_published_ranges(generator: torch.Generator) -> None:
    net = Kda(model_dim=256, num_heads=256, generator=generator)
    rate, step = net.log_rate.exp(), softplus(net.gate_bias)

    assert 1 <= rate.min() < 2
    assert 14 < rate.max() <= 16
    assert 1e-3 - 1e-6 <= step.min() < 2e-3
    assert 0.09 < step.max() <= 0.1 + 1e-6
