import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from synthbench.mechanisms.path import Path
from tests.mechanisms.loops import check_loop, heads_of, merged, summed_taps


def query_by_query(net: Path, x: Tensor) -> Tensor:
    """Keys pass the matrix of each token, then the query attends."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    directions = x @ net.direction_in.weight @ net.direction_out.weight
    if net.direction_convolution is not None:
        assert net.direction_convolution.weight.shape == (3, 12)
        directions = silu(summed_taps(net.direction_convolution, directions))
    w = heads_of(directions)
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


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize("length", [1, 2, 33, 70])
def test_keys_are_turned_token_by_token(length: int, condition: str) -> None:
    check_loop(Path, query_by_query, length, condition)
