from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.forgetting import Forgetting
from tests.mechanisms.loops import agree, heads_of, merged


@pytest.mark.parametrize("length", [1, 75])
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
