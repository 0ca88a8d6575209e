from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.mechanisms.deltaproduct import Deltaproduct
from synthbench.mechanisms.gated_deltanet import GatedDeltanet
from synthbench.mechanisms.kda import Kda
from tests.mechanisms.loops import agree, built, delta_rule, divide_by_rms, heads_of, merged, summed_taps, undecayed


def reads_of_heads(net: GatedDeltanet, x: Tensor, fused: Tensor, top: int) -> list[Tensor]:
    """Each head's output before the norm at every token, from q, k and v side by side."""
    beta = top * (x @ net.rate.weight).sigmoid()
    alpha = torch.exp(-net.log_rate.exp().flatten() * softplus(x @ net.gate.weight + net.gate_bias.flatten()))
    q, k, v = map(heads_of, fused.chunk(3, dim=-1))
    return delta_rule(q, k, v, beta, alpha.mT.unsqueeze(-1))


def reads_of_channels(net: Kda, x: Tensor, fused: Tensor, top: int) -> list[Tensor]:
    """The same, with a gate a channel."""
    beta = top * (x @ net.rate.weight).sigmoid()
    steps = softplus(heads_of(x @ net.gate_in.weight @ net.gate_out.weight) + net.gate_bias)
    q, k, v = map(heads_of, fused.chunk(3, dim=-1))
    return delta_rule(q, k, v, beta, torch.exp(-net.log_rate.exp() * steps))


def gates_of_channels(net: Kda, x: Tensor) -> Tensor:
    assert net.out_gate is not None
    few, many, bias = net.out_gate.parameters()
    return (x @ few @ many + bias).sigmoid()


READS: dict[Any, Any] = {GatedDeltanet: reads_of_heads, Kda: reads_of_channels}
GATES: dict[Any, Any] = {GatedDeltanet: lambda net, x: silu(x @ net.out_gate.weight), Kda: gates_of_channels}


@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 75])
@pytest.mark.parametrize("mechanism", READS)
def test_bare_is_the_gated_delta_rule_step_by_step(
    mechanism: Any, length: int, eigenvalues: str, top: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(mechanism, generator, "bare", eigenvalues=eigenvalues)
    x = normal(3, length, 12).requires_grad_()

    outs = READS[mechanism](net, x, silu(net.qkv(x)), top)
    agree(net, x, merged(net, [divide_by_rms(out) for out in outs]))


@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 2, 75])
@pytest.mark.parametrize("mechanism", READS)
def test_stock_convolves_what_it_projects_and_gates_what_it_normed(
    mechanism: Any, length: int, eigenvalues: str, top: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(mechanism, generator, eigenvalues=eigenvalues)
    x = normal(3, length, 12).requires_grad_()

    outs = READS[mechanism](net, x, silu(summed_taps(net.own_convolution, net.qkv(x))), top)
    gates = heads_of(GATES[mechanism](net, x)).unbind(2)
    normed = [divide_by_rms(out / 6**0.5) * net.norm.weight for out in outs]
    agree(net, x, merged(net, [out * gate for out, gate in zip(normed, gates, strict=True)]))


@pytest.mark.parametrize("mechanism", [GatedDeltanet, Kda, Deltaproduct])
def test_weight_decay_leaves_rates_and_biases_of_the_gate_alone_unless_it_is_bare(
    mechanism: type[GatedDeltanet | Kda | Deltaproduct], generator: torch.Generator
) -> None:
    assert undecayed(built(mechanism, generator, "stock")) == {"log_rate", "gate_bias"}
    assert undecayed(built(mechanism, generator, "bare")) == set()


def test_gates_begin_in_the_published_ranges(generator: torch.Generator) -> None:
    net = GatedDeltanet(model_dim=256, num_heads=256, generator=generator)
    step, rate = softplus(net.gate_bias), net.log_rate.exp()

    assert 1e-3 - 1e-6 <= step.min() < 2e-3
    assert 0.05 < step.max() <= 0.1 + 1e-6
    assert rate.min() < 1
    assert 14 < rate.max() <= 16
