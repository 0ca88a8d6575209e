import math

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.retention import Retention
from tests.mechanisms.loops import check_loop, divide_by_rms, heads_of, merged, turned
from tests.tensors import normal


def written_out(q: Tensor, k: Tensor, v: Tensor, gammas: list[float]) -> Tensor:
    """The paper's parallel form with its three normalisations, query by query, then the group norm."""
    out = torch.zeros_like(v)
    for head, gamma in enumerate(gammas):
        for t in range(q.shape[-2]):
            decays = gamma ** torch.arange(t, -1, -1, dtype=q.dtype)
            scores = torch.einsum("bd,bsd->bs", q[:, head, t], k[:, head, : t + 1]) / math.sqrt(q.shape[-1])
            weights = scores * decays / decays.sum().sqrt()
            guard = weights.sum(-1, keepdim=True).abs().clamp(min=1)
            out[:, head, t] = torch.einsum("bs,bsd->bd", weights, v[:, head, : t + 1]) / guard
    return divide_by_rms(out, 1e-6)


@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize("length", [1, 9])
def test_attention_is_the_papers_parallel_form(length: int, scale: float) -> None:
    q, k, v = (scale * normal(2, 3, length, 4, seed=seed) for seed in range(3))
    expected = written_out(q, k, v, [1 - 2**-5, 1 - 2**-6, 1 - 2**-7])

    torch.testing.assert_close(Retention().attend(q, k, v), expected, rtol=1e-9, atol=1e-9)


def gated(net: Retention, x: Tensor) -> Tensor:
    """The layer: the paper's form of turned queries and keys, with a gate behind the norm."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    if net.rotation is not None:
        q, k = turned(q), turned(k)
    heads = written_out(q, k, v, [1 - 2**-5, 1 - 2**-6])
    y = heads_of(x @ net.gate.weight)
    return merged(net, list((heads * y * y.sigmoid()).unbind(2)))


@pytest.mark.parametrize("length", [1, 9, 70])  # the last in chunks
def test_stock_turns_queries_and_keys_and_has_a_gate_behind_the_norm(length: int) -> None:
    check_loop(Retention, gated, length, is_turned=True)
