from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.layers import Linear
from synthbench.mechanisms.deltaproduct import Deltaproduct
from tests.mechanisms.loops import agree, built, divide_by_rms, heads_of, merged, summed_taps, unit


@pytest.mark.parametrize(
    ("length", "steps", "gate"), [(1, 2, "head"), (40, 1, "head"), (40, 2, "none"), (40, 3, "head")]
)
def test_bare_is_a_product_of_householder_steps_one_by_one(
    length: int, steps: int, gate: Literal["head", "none"], normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(Deltaproduct, generator, "bare", steps=steps, gate=gate)
    x = normal(3, length, 12).requires_grad_()

    outs = householder_steps(net, x, silu(net.qkv(x)), silu(net.others(x)) if net.others else None)
    agree(net, x, merged(net, [divide_by_rms(out) for out in outs]))


@pytest.mark.parametrize(
    ("length", "steps", "gate"), [(1, 2, "head"), (2, 3, "head"), (40, 1, "head"), (40, 2, "none"), (40, 3, "head")]
)
def test_stock_convolves_every_key_and_value_and_gates_what_it_normed(
    length: int, steps: int, gate: Literal["head", "none"], normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(Deltaproduct, generator, steps=steps, gate=gate)
    assert net.own_convolution is not None
    assert net.norm is not None
    assert isinstance(net.out_gate, Linear)
    x = normal(3, length, 12).requires_grad_()

    others = None
    if net.others is not None:
        assert net.others_convolution is not None
        others = silu(summed_taps(net.others_convolution, net.others(x)))
    outs = householder_steps(net, x, silu(summed_taps(net.own_convolution, net.qkv(x))), others)
    gates = heads_of(silu(x @ net.out_gate.weight)).unbind(2)
    normed = [divide_by_rms(out / 6**0.5) * net.norm.weight for out in outs]
    agree(net, x, merged(net, [out * gate for out, gate in zip(normed, gates, strict=True)]))


def householder_steps(net: Deltaproduct, x: Tensor, fused: Tensor, others: Tensor | None) -> list[Tensor]:
    """Each head's output before the norm at every token, from q, k and v and those of the other steps."""
    q, k, v = (heads_of(part) for part in fused.chunk(3, dim=-1))
    keys, values, steps = [unit(k)], [v], net.steps
    if others is not None:
        other_keys, other_values = heads_of(others).chunk(2, dim=-1)
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
    return outs
