from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.forgetting import Forgetting


def agree(net: Forgetting, x: Tensor, plain: Tensor) -> None:
    """``net(x)`` is ``plain``, and so are the gradients by the tokens and all parameters."""
    leaves, out = [x, *net.parameters()], net(x)
    fast, slow = (torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True) for y in (out, plain))

    torch.testing.assert_close(out, plain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast, slow, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(net.forward_last(x), plain[:, -1:], rtol=1e-9, atol=1e-9)


def heads_of(x: Tensor) -> Tensor:
    cut: Tensor = x.unflatten(-1, (2, -1)).transpose(1, 2)
    return cut


def merged(net: Forgetting, outs: list[Tensor]) -> Tensor:
    projected: Tensor = net.out(torch.stack(outs, dim=1).flatten(-2))
    return projected


@pytest.mark.parametrize("length", [1, 11, 75])
def test_forward_is_the_softmax_of_scores_and_forgetting_query_by_query(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Forgetting(model_dim=12, num_heads=2, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    assert net.gate.bias is not None
    log_gate = (x @ net.gate.weight + net.gate.bias).sigmoid().log().mT
    outs = []
    for t in range(length):
        forgotten = torch.stack([log_gate[..., s + 1 : t + 1].sum(-1) for s in range(t + 1)], dim=-1)
        scores = torch.einsum("bhd,bhsd->bhs", q[:, :, t], k[:, :, : t + 1]) / 6**0.5 + forgotten
        outs.append(torch.einsum("bhs,bhsd->bhd", scores.softmax(-1), v[:, :, : t + 1]))

    agree(net, x, merged(net, outs))
