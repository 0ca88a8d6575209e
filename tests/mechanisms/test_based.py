from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.based import Based
from tests.mechanisms.loops import check_loop, turned
from tests.tensors import mix, normal


def test_bare_is_the_taylor_kernel_over_its_sum() -> None:
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))
    z = q @ k.mT / 4

    torch.testing.assert_close(Based(window=0, conv=0).attend(q, k, v), mix(1 + z + z**2 / 2, v))


def token_by_token(net: Based, x: Tensor) -> Tensor:
    """A gated convolution, then Taylor heads and turned heads with a window, one by one."""
    assert net.ahead.bias is not None
    seen, outs = [], []
    for t in range(x.shape[1]):
        taps = [net.ahead.weight[j] * x[:, t - j] for j in range(min(3, t + 1))]
        convolved = net.ahead.bias + torch.stack(taps).sum(0)
        fused = net.qkv(convolved * net.gate(x[:, t]) + x[:, t])
        seen.append([part.unflatten(-1, (-1, 4)).unbind(1) for part in fused.chunk(3, dim=-1)])
        heads = []
        for head in range(net.num_heads):
            q, ks, vs = (torch.stack([tokens[n][head] for tokens in seen], dim=1) for n in range(3))
            if head < net.num_heads - net.num_heads // 2:
                z = torch.einsum("bd,bsd->bs", q[:, t], ks) / 2
                kernel = 1 + z + z**2 / 2
                weights = kernel / (kernel.sum(-1, keepdim=True) + 1e-6)
            else:
                q, ks = turned(q), turned(ks)
                first = max(0, t - net.window + 1)
                z = torch.einsum("bd,bsd->bs", q[:, t], ks[:, first:]) / 2
                weights = torch.cat([torch.zeros(len(x), first), z.softmax(-1)], dim=-1)
            heads.append(torch.einsum("bs,bsd->bd", weights, vs))
        outs.append(torch.cat(heads, dim=-1))
    return net.out(torch.stack(outs, dim=1))


@pytest.mark.parametrize("num_heads", [2, 3])
@pytest.mark.parametrize(("length", "window"), [(1, 64), (9, 64), (40, 5)])
def test_stock_convolves_then_has_taylor_heads_and_heads_with_a_window(
    length: int, window: int, num_heads: int
) -> None:
    sizes: dict[str, Any] = {"width": 4 * num_heads, "num_heads": num_heads}
    check_loop(Based, token_by_token, length, **sizes, window=window, is_turned=True)
