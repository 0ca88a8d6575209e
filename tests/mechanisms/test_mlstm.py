from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from synthbench.mechanisms.mlstm import Mlstm
from tests.mechanisms.loops import agree, heads_of, merged


def step_by_step(net: Mlstm, x: Tensor) -> Tensor:
    """The cell without a stabiliser."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    i, f = (x @ net.gates.weight).chunk(2, dim=-1)
    i, f = (i + net.input_bias.flatten()).exp(), (f + net.forget_bias.flatten()).sigmoid()
    o = heads_of(net.output_gate(x)).sigmoid()
    c, n, outs = torch.zeros(3, 2, 6, 6, dtype=x.dtype), torch.zeros(3, 2, 6, dtype=x.dtype), []
    for t in range(x.shape[1]):
        key = i[:, t, :, None] * k[:, :, t] / 6**0.5
        c = f[:, t, :, None, None] * c + key[..., None] * v[:, :, t, None, :]
        n = f[:, t, :, None] * n + key
        read = torch.einsum("bhk,bhkv->bhv", q[:, :, t], c)
        normaliser = (n * q[:, :, t]).sum(-1, keepdim=True).abs().clamp(min=1)
        outs.append(o[:, :, t] * layer_norm(read / normaliser, (6,)))
    return merged(net, outs)


@pytest.mark.parametrize("scale", [0.3, 10.0])
@pytest.mark.parametrize("length", [1, 75])
def test_forward_is_the_cell_without_its_stabiliser_step_by_step(
    length: int, scale: float, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Mlstm(model_dim=12, num_heads=2, generator=generator).double()
    with torch.no_grad():
        net.gates.weight.copy_(scale * normal(12, 4, seed=1))
    x = normal(3, length, 12).requires_grad_()

    agree(net, x, step_by_step(net, x))


def test_gates_of_a_thousand_neither_overflow_nor_lose_the_last_value(normal: Callable[..., Tensor]) -> None:
    q, k, v = (normal(1, 2, 70, 6, seed=seed).float() for seed in range(3))
    log_input = torch.linspace(0, 1e3, 70).view(1, 1, -1, 1).expand(1, 2, -1, -1)

    out = Mlstm().attend(q, k, v, log_input, torch.zeros_like(log_input))

    assert out.isfinite().all()
    signs = (q * k).sum(-1, keepdim=True).sign()
    torch.testing.assert_close(out[..., -1:, :], layer_norm(signs * v, (6,))[..., -1:, :], rtol=1e-3, atol=1e-3)


def test_gates_begin_as_the_authors_do(generator: torch.Generator) -> None:
    net = Mlstm(num_heads=4, generator=generator)

    assert net.forget_bias.flatten().tolist() == [3, 4, 5, 6]
    assert (net.gates.weight == 0).all()
