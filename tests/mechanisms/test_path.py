from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.path import Path
from tests.mechanisms.loops import agree, heads_of, merged


def query_by_query(net: Path, x: Tensor) -> Tensor:
    """Keys pass the matrix of each token, then the query attends."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    w = heads_of(x @ net.direction_in.weight @ net.direction_out.weight)
    w = w / w.norm(dim=-1, keepdim=True)
    assert net.rate.bias is not None
    beta = 2 * (x @ net.rate.weight + net.rate.bias).sigmoid().mT
    keys, outs = k[:, :, :0], []
    for t in range(x.shape[1]):
        w_t = w[:, :, t, :, None]
        turned = keys - beta[:, :, t, None, None] * (keys @ w_t) @ w_t.mT
        keys = torch.cat([turned, k[:, :, t : t + 1]], dim=-2)
        weights = (torch.einsum("bhd,bhsd->bhs", q[:, :, t], keys) / 6**0.5).softmax(-1)
        outs.append(torch.einsum("bhs,bhsd->bhd", weights, v[:, :, : t + 1]))
    return merged(net, outs)


@pytest.mark.parametrize("length", [1, 33, 70])
def test_forward_turns_the_keys_token_by_token(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Path(model_dim=12, num_heads=2, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()

    agree(net, x, query_by_query(net, x))
