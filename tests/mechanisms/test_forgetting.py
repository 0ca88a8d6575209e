from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.forgetting import Forgetting
from synthbench.positions.rope import Rope
from tests.mechanisms.loops import agree, built, divide_by_rms, heads_of, merged


@pytest.mark.parametrize("length", [1, 75])
def test_forward_is_the_softmax_of_scores_and_forgetting_query_by_query(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(Forgetting, generator)
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))

    agree(net, x, merged(net, query_by_query(net, x, q, k, v)))


@pytest.mark.parametrize("length", [1, 2, 75])
def test_pro_shifts_keys_and_values_and_norms_and_gates_token_by_token(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(Forgetting, generator, pro=True)
    for gain in (net.q_gain, net.k_gain, net.out_gain):
        gain.data.uniform_(0.5, 1.5, generator=generator)
    x = normal(3, length, 12).requires_grad_()
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    shares = (x @ net.shift.weight).sigmoid()  # [batch, length, key's and value's of each head]
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for t in range(length):
        for rows, raw, share in ((keys, k, shares[:, t, 0::2]), (values, v, shares[:, t, 1::2])):
            before = raw[:, :, t - 1] if t else torch.zeros_like(raw[:, :, 0])
            rows.append(share[..., None] * before + (1 - share[..., None]) * raw[:, :, t])
    q = divide_by_rms(q) * net.q_gain
    k = divide_by_rms(torch.stack(keys, dim=2)) * net.k_gain
    outs = query_by_query(net, x, q, k, torch.stack(values, dim=2))
    gates = heads_of((x @ net.out_gate.weight).sigmoid()).unbind(2)
    normed = [divide_by_rms(out, 1e-6) * net.out_gain[:, 0] for out in outs]

    agree(net, x, merged(net, [out * gate for out, gate in zip(normed, gates, strict=True)]))


def query_by_query(net: Forgetting, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Each head's output, from all scores of a query and what was forgotten since its keys."""
    assert net.gate.bias is not None
    log_gate = (x @ net.gate.weight + net.gate.bias).sigmoid().log().mT
    outs = []
    for t in range(x.shape[1]):
        forgotten = torch.stack([log_gate[..., s + 1 : t + 1].sum(-1) for s in range(t + 1)], dim=-1)
        scores = torch.einsum("bhd,bhsd->bhs", q[:, :, t], k[:, :, : t + 1]) / 6**0.5 + forgotten
        outs.append(torch.einsum("bhs,bhsd->bhd", scores.softmax(-1), v[:, :, : t + 1]))
    return outs


def test_positions_turn_the_keys_of_pro_as_it_shifted_and_normed_them(
    normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = built(Forgetting, generator, pro=True)
    net.k_gain.data.uniform_(0.5, 1.5, generator=generator)
    x = normal(3, 9, 12)
    _, plain, _ = net.heads(x)
    net.rotation = Rope(model_dim=12, num_heads=2, length=9, generator=generator).rotation(generator)
    _, turned, _ = net.heads(x)

    assert net.rotation is not None
    torch.testing.assert_close(turned, net.rotation(plain))
