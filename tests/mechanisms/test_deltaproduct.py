from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.mechanisms.deltaproduct import Deltaproduct
from tests.mechanisms.loops import agree, divide_by_rms, heads_of, merged, unit


@pytest.mark.parametrize(
    ("length", "steps", "gate"), [(1, 2, "head"), (40, 1, "head"), (40, 2, "none"), (40, 3, "head")]
)
def test_forward_is_a_product_of_householder_steps_one_by_one(
    length: int, steps: int, gate: Literal["head", "none"], normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Deltaproduct(model_dim=12, num_heads=2, steps=steps, gate=gate, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in silu(net.qkv(x)).chunk(3, dim=-1))
    keys, values = [unit(k)], [v]
    if net.others is not None:
        others = heads_of(silu(net.others(x))).chunk(2, dim=-1)
        keys += [unit(key) for key in others[0].chunk(steps - 1, dim=-1)]
        values += others[1].chunk(steps - 1, dim=-1)
    beta = 2 * (x @ net.rate.weight).sigmoid().unflatten(-1, (2, steps))
    alpha = torch.ones(3, length, 2, dtype=x.dtype)
    if gate == "head":
        steps_of = softplus(x @ net.forget.weight + net.gate_bias.flatten())
        alpha = torch.exp(-net.log_rate.exp().flatten() * steps_of)
    state, outs, eye = torch.zeros(3, 2, 6, 6, dtype=torch.float64), [], torch.eye(6, dtype=torch.float64)
    for t in range(length):
        state = alpha[:, t, :, None, None] * state
        for j in range(steps):
            b, k_t = beta[:, t, :, j, None, None], keys[j][:, :, t, :, None]
            state = (eye - b * k_t @ k_t.mT) @ state + b * k_t * values[j][:, :, t, None, :]
        outs.append(divide_by_rms(torch.einsum("bhk,bhkv->bhv", unit(q)[:, :, t], state)))

    agree(net, x, merged(net, outs))
