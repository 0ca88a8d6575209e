import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.mechanisms.deltaproduct import Deltaproduct
from tests.mechanisms.loops import check_loop, convolved_heads, delta_rule, heads_of, normed_and_gated, summed_taps


def householder_steps(net: Deltaproduct, x: Tensor) -> Tensor:
    """A product of Householder steps at every token, one by one."""
    q, k, v = convolved_heads(net, x)
    keys, values, steps = [k], [v], net.steps
    if net.others is not None:
        others = net.others(x) if net.others_convolution is None else summed_taps(net.others_convolution, net.others(x))
        other_keys, other_values = heads_of(silu(others)).chunk(2, dim=-1)
        keys += other_keys.chunk(steps - 1, dim=-1)
        values += other_values.chunk(steps - 1, dim=-1)
    beta = 2 * (x @ net.rate.weight).sigmoid().unflatten(-1, (2, steps))
    alpha = torch.ones(3, 2, x.shape[1], 1, dtype=x.dtype)
    if net.gate == "head":
        steps_of = softplus(x @ net.forget.weight + net.gate_bias.flatten())
        alpha = torch.exp(-net.log_rate.exp().flatten() * steps_of).mT.unsqueeze(-1)
    return normed_and_gated(net, x, delta_rule(q, keys, values, beta, alpha))


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize(
    ("length", "steps", "gate"), [(1, 2, "head"), (2, 3, "head"), (40, 1, "head"), (20, 2, "none"), (20, 3, "head")]
)
def test_it_is_a_product_of_householder_steps_one_by_one(length: int, steps: int, gate: str, condition: str) -> None:
    check_loop(Deltaproduct, householder_steps, length, condition, steps=steps, gate=gate)
