import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.forgetting import Forgetting
from tests.mechanisms.loops import check_loop, divide_by_rms, heads_of, merged, turned


def query_by_query(net: Forgetting, x: Tensor) -> Tensor:
    """All scores of a query and what was forgotten since its keys; with ``pro``, shifts, norms and gates."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    if net.pro:
        shares = (x @ net.shift.weight).sigmoid()  # [batch, length, key's and value's of each head]
        k = divide_by_rms(shifted(k, shares[..., 0::2])) * net.k_gain
        q, v = divide_by_rms(q) * net.q_gain, shifted(v, shares[..., 1::2])
    if net.rotation is not None:
        q, k = turned(q), turned(k)
    assert net.gate.bias is not None
    log_gate = (x @ net.gate.weight + net.gate.bias).sigmoid().log().mT
    outs = []
    for t in range(x.shape[1]):
        forgotten = torch.stack([log_gate[..., s + 1 : t + 1].sum(-1) for s in range(t + 1)], dim=-1)
        scores = torch.einsum("bhd,bhsd->bhs", q[:, :, t], k[:, :, : t + 1]) / 6**0.5 + forgotten
        out = torch.einsum("bhs,bhsd->bhd", scores.softmax(-1), v[:, :, : t + 1])
        if net.pro:
            gate = (x[:, t] @ net.out_gate.weight).sigmoid().unflatten(-1, (2, 6))
            out = divide_by_rms(out, 1e-6) * net.out_gain[:, 0] * gate
        outs.append(out)
    return merged(net, outs)


def shifted(x: Tensor, share: Tensor) -> Tensor:
    """Token by token, the share of the row before in every row of a head."""
    rows = []
    for t in range(x.shape[2]):
        before = x[:, :, t - 1] if t else torch.zeros_like(x[:, :, 0])
        rows.append(share[:, t, :, None] * before + (1 - share[:, t, :, None]) * x[:, :, t])
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize(("pro", "is_turned"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_forward_is_the_softmax_of_scores_and_forgetting_query_by_query(
    length: int, *, pro: bool, is_turned: bool
) -> None:
    check_loop(Forgetting, query_by_query, length, pro=pro, is_turned=is_turned)
