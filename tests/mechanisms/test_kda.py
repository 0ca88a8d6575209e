from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.mechanisms.kda import Kda


def agree(net: Kda, x: Tensor, plain: Tensor) -> None:
    """``net(x)`` is ``plain``, and so are the gradients by the tokens and all parameters."""
    leaves, out = [x, *net.parameters()], net(x)
    fast, slow = (torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True) for y in (out, plain))

    torch.testing.assert_close(out, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(net.forward_last(x), plain[:, -1:], rtol=1e-9, atol=1e-9)


def heads_of(x: Tensor) -> Tensor:
    cut: Tensor = x.unflatten(-1, (2, -1)).transpose(1, 2)
    return cut


def merged(net: Kda, outs: list[Tensor]) -> Tensor:
    projected: Tensor = net.out(torch.stack(outs, dim=1).flatten(-2))
    return projected


def divide_by_rms(heads: Tensor) -> Tensor:
    return heads / (heads.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def unit(x: Tensor) -> Tensor:
    normal: Tensor = x / x.norm(dim=-1, keepdim=True)
    return normal


@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 11, 75])
def test_forward_is_the_delta_rule_with_a_gate_a_channel_step_by_step(
    length: int,
    eigenvalues: Literal["zero-one", "signed"],
    top: int,
    normal: Callable[..., Tensor],
    generator: torch.Generator,
) -> None:
    net = Kda(model_dim=12, num_heads=2, eigenvalues=eigenvalues, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in silu(net.qkv(x)).chunk(3, dim=-1))
    q, k = unit(q), unit(k)
    beta = top * (x @ net.rate.weight).sigmoid()
    steps = softplus(heads_of(x @ net.gate_in.weight @ net.gate_out.weight) + net.gate_bias)
    alpha = torch.exp(-net.log_rate.exp() * steps)
    state, outs, eye = torch.zeros(3, 2, 6, 6, dtype=torch.float64), [], torch.eye(6, dtype=torch.float64)
    for t in range(length):
        b, k_t = beta[:, t, :, None, None], k[:, :, t, :, None]
        state = (eye - b * k_t @ k_t.mT) @ (alpha[:, :, t, :, None] * state) + b * k_t * v[:, :, t, None, :]
        outs.append(divide_by_rms(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state)))

    agree(net, x, merged(net, outs))


def test_gates_begin_in_the_published_ranges(generator: torch.Generator) -> None:
    net = Kda(model_dim=256, num_heads=256, generator=generator)
    rate = net.log_rate.exp()

    assert 1 <= rate.min() < 2
    assert 14 < rate.max() <= 16
    assert (net.gate_bias == 0).all()
