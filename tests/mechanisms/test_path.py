from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from synthbench.mechanisms.path import Path
from tests.mechanisms.loops import agree, built, heads_of, merged, summed_taps


def query_by_query(net: Path, x: Tensor, directions: Tensor) -> Tensor:
    """Keys pass the matrix of each token, then the query attends."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
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


@pytest.mark.parametrize("length", [1, 33, 70])
def test_bare_turns_the_keys_token_by_token(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(Path, generator, "bare")
    x = normal(3, length, 12).requires_grad_()

    agree(net, x, query_by_query(net, x, x @ net.direction_in.weight @ net.direction_out.weight))


@pytest.mark.parametrize("length", [1, 2, 33, 70])
def test_stock_convolves_the_directions_of_its_matrices(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(Path, generator)
    assert net.direction_convolution is not None
    assert net.direction_convolution.weight.shape == (3, 12)
    x = normal(3, length, 12).requires_grad_()

    directions = summed_taps(net.direction_convolution, x @ net.direction_in.weight @ net.direction_out.weight)
    agree(net, x, query_by_query(net, x, silu(directions)))
