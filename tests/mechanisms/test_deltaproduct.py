import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.mechanisms.deltaproduct import Deltaproduct
from tests.mechanisms.loops import check_loop, convolved_heads, heads_of, normed_and_gated, summed_taps, unit


def householder_steps(net: Deltaproduct, x: Tensor) -> Tensor:
    """A product of Householder steps at every token, one by one."""
    q, k, v = convolved_heads(net, x)
    keys, values, steps = [unit(k)], [v], net.steps
    if net.others is not None:
        others = net.others(x) if net.others_convolution is None else summed_taps(net.others_convolution, net.others(x))
        other_keys, other_values = heads_of(silu(others)).chunk(2, dim=-1)
        keys += [unit(key) for key in other_keys.chunk(steps - 1, dim=-1)]
        values += other_values.chunk(steps - 1, dim=-1)
    beta = 2 * (x @ net.rate.weight).sigmoid().unflatten(-1, (2, steps))
    alpha = torch.ones(3, x.shape[1], 2, dtype=x.dtype)
    if net.gate == "head":
        steps_of = softplus(x @ net.forget.weight + net.gate_bias.flatten())
        alpha = torch.exp(-net.log_rate.exp().flatten() * steps_of)
    state, outs, eye = torch.zeros(3, 2, 6, 6, dtype=torch.float64), [], torch.eye(6, dtype=torch.float64)
    for t in range(x.shape[1]):
        state = alpha[:, t, :, None, None] * state
        for j in range(steps):
            b, k_t = beta[:, t, :, j, None, None], keys[j][:, :, t, :, None]
            state = (eye - b * k_t @ k_t.mT) @ state + b * k_t * values[j][:, :, t, None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", unit(q)[:, :, t], state))
    return normed_and_gated(net, x, outs)


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize(
    ("length", "steps", "gate"), [(1, 2, "head"), (2, 3, "head"), (40, 1, "head"), (20, 2, "none"), (20, 3, "head")]
)
def test_it_is_a_product_of_householder_steps_one_by_one(length: int, steps: int, gate: str, condition: str) -> None:
    check_loop(Deltaproduct, householder_steps, length, condition, steps=steps, gate=gate)
