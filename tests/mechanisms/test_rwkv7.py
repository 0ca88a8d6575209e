from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from synthbench.mechanisms.rwkv7 import Rwkv7
from tests.mechanisms.loops import agree, heads_of, merged


@pytest.mark.parametrize("length", [1, 75])
def test_forward_is_the_recurrence_of_rwkv7_step_by_step(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Rwkv7(model_dim=12, num_heads=2, gate_rank=5, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    r, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    decay = heads_of((x @ net.decay_in.weight).tanh() @ net.decay_out.weight) + net.decay_bias
    w = torch.exp(-torch.exp(torch.tensor(-0.5, dtype=x.dtype)) * decay.sigmoid())
    a = (heads_of(x @ net.rate_in.weight @ net.rate_out.weight) + net.rate_bias).sigmoid()
    kappa = k * net.removal
    kappa = kappa / kappa.norm(dim=-1, keepdim=True)
    added = k * (1 + (a - 1) * net.mixing)
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    for t in range(length):
        transition = torch.diag_embed(w[:, :, t]) - (a * kappa)[:, :, t, :, None] * kappa[:, :, t, None, :]
        state = transition @ state + added[:, :, t, :, None] * v[:, :, t, None, :]
        read = layer_norm(torch.einsum("bhk,bhkv->bhv", r[:, :, t], state), (6,), eps=6e-5)
        bonus = (r * added * net.bonus)[:, :, t].sum(-1, keepdim=True)
        outs.append(read + bonus * v[:, :, t])

    agree(net, x, merged(net, outs))


def test_it_begins_as_the_authors_do(generator: torch.Generator) -> None:
    net = Rwkv7(model_dim=64, num_heads=4, generator=generator)
    largest = [8 * part.abs().max().item() for part in net.qkv.weight.chunk(3, dim=-1)]

    assert largest == pytest.approx([0.5, 0.05, 0.5], rel=0.01)
    assert [net.decay_bias.flatten()[n].item() for n in (0, -1)] == pytest.approx([-8, 3])
    assert (net.mixing == 1.02).all()
    assert (net.bonus == -0.04).all()
