import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from synthbench.mechanisms.rwkv7 import Rwkv7
from tests.mechanisms.loops import check_loop, heads_of, merged


def shifted(net: Rwkv7, x: Tensor) -> list[Tensor]:
    """The token mixes from which r, w, k, v, a and g are projected."""
    if net.shift is None:
        return [x] * 6
    before = torch.cat([0 * x[:, :1], x[:, :-1]], dim=1)
    return [x + mix * (before - x) for mix in net.shift.weight]


def step_by_step(net: Rwkv7, x: Tensor) -> Tensor:
    """The time mixing of x070, token by token, with the state transposed."""
    xr, xw, xk, xv, xa, xg = shifted(net, x)
    weights = net.qkv.weight.chunk(3, dim=1)
    biases = (torch.zeros(36) if net.qkv.bias is None else net.qkv.bias).chunk(3)
    r, k, v = (heads_of(x @ weight + bias) for x, weight, bias in zip((xr, xk, xv), weights, biases, strict=True))
    decay = heads_of((xw @ net.decay_in.weight).tanh() @ net.decay_out.weight) + net.decay_bias
    w = torch.exp(-torch.exp(torch.tensor(-0.5, dtype=x.dtype)) * decay.sigmoid())
    a = (heads_of(xa @ net.rate_in.weight @ net.rate_out.weight) + net.rate_bias).sigmoid()
    kappa = k * net.removal
    kappa = kappa / kappa.norm(dim=-1, keepdim=True)
    added = k * (1 + (a - 1) * net.mixing)
    g = torch.ones_like(v)
    if net.gate_in is not None and net.gate_out is not None:
        g = heads_of((xg @ net.gate_in.weight).sigmoid() @ net.gate_out.weight)
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    for t in range(x.shape[1]):
        transition = torch.diag_embed(w[:, :, t]) - (a * kappa)[:, :, t, :, None] * kappa[:, :, t, None, :]
        state = transition @ state + added[:, :, t, :, None] * v[:, :, t, None, :]
        read = layer_norm(torch.einsum("bhk,bhkv->bhv", r[:, :, t], state), (6,), eps=6e-5)
        if net.gain is not None and net.offset is not None:
            read = read * net.gain[:, 0] + net.offset[:, 0]
        bonus = (r * added * net.bonus)[:, :, t].sum(-1, keepdim=True)
        outs.append((read + bonus * v[:, :, t]) * g[:, :, t])
    return merged(net, outs)


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize("length", [1, 40])
def test_forward_is_the_time_mixing_of_rwkv7_step_by_step(length: int, condition: str) -> None:
    check_loop(Rwkv7, step_by_step, length, condition, gate_rank=5)
