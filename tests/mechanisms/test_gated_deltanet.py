"""Gated DeltaNet, whose gates are of heads, and KDA, whose gates are of channels."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from synthbench.mechanisms.gated_deltanet import GatedDeltanet
from synthbench.mechanisms.kda import Kda
from tests.mechanisms.loops import check_loop, convolved_heads, delta_rule, heads_of, normed_and_gated


def step_by_step(net: GatedDeltanet, x: Tensor) -> Tensor:
    """The gated delta rule token by token."""
    beta = (2 if net.eigenvalues == "signed" else 1) * (x @ net.rate.weight).sigmoid().unsqueeze(-1)
    gates = x @ net.gate_in.weight @ net.gate_out.weight if isinstance(net, Kda) else x @ net.gate.weight
    alpha = torch.exp(-net.log_rate.exp() * softplus(heads_of(gates) + net.gate_bias))
    q, k, v = convolved_heads(net, x)
    return normed_and_gated(net, x, delta_rule(q, [k], [v], beta, alpha))


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize("eigenvalues", ["zero-one", "signed"])
@pytest.mark.parametrize("length", [1, 2, 40])
@pytest.mark.parametrize("mechanism", [GatedDeltanet, Kda])
def test_it_is_the_gated_delta_rule_between_convolution_norm_and_gate(
    mechanism: type[GatedDeltanet], length: int, eigenvalues: str, condition: str
) -> None:
    check_loop(mechanism, step_by_step, length, condition, eigenvalues=eigenvalues)
