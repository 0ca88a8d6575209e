"""Layers that compare a token with those before it, against loops that go query by query from their formulas."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from synthbench.mechanisms import MECHANISMS, Mechanism
from synthbench.mechanisms.based import Based
from synthbench.mechanisms.differential import Differential
from synthbench.mechanisms.forgetting import Forgetting
from synthbench.mechanisms.hyena import Hyena
from synthbench.mechanisms.identity import Identity
from synthbench.mechanisms.path import Path
from synthbench.mechanisms.retention import Retention
from tests.mechanisms.loops import Loop, check_loop, divide_by_rms, every, heads_of, merged, summed_taps, turned

BOTH = ["bare", "stock"]


def two_projections(net: Identity, x: Tensor) -> Tensor:
    assert net.value.bias is not None
    assert net.out.bias is not None
    return (x @ net.value.weight + net.value.bias) @ net.out.weight + net.out.bias


def taylor_and_window(net: Based, x: Tensor) -> Tensor:
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
    return merged(net, outs)


def difference_of_softmaxes(net: Differential, x: Tensor) -> Tensor:
    """Of halves of a head, or of two heads, each turned by all frequencies."""
    q, k, v = (part.unflatten(-1, (net.num_heads, 6)).transpose(1, 2) for part in net.qkv(x).chunk(3, dim=-1))
    pairs, gain = [turned(part).chunk(2, dim=-1) for part in (q, k)], torch.ones(6, dtype=x.dtype)
    if net.layout == "authors":
        pairs, gain = [(turned(part)[:, 0::2], turned(part)[:, 1::2]) for part in (q, k)], net.gain.weight
        v = torch.cat([v[:, 0::2], v[:, 1::2]], dim=-1)
    q1, k1, q2, k2 = net.vectors.squeeze(1)
    factor, outs = (q1 @ k1).exp() - (q2 @ k2).exp() + 0.3, []
    for t in range(x.shape[1]):
        first, second = (
            (torch.einsum("bhd,bhsd->bhs", q[:, :, t], k[:, :, : t + 1]) / q.shape[-1] ** 0.5).softmax(-1)
            for q, k in zip(*pairs, strict=True)
        )
        mixed = torch.einsum("bhs,bhsd->bhd", first - factor * second, v[:, :, : t + 1])
        outs.append(0.7 * divide_by_rms(mixed) * gain)
    return merged(net, outs)


def scores_and_forgetting(net: Forgetting, x: Tensor) -> Tensor:
    """All scores of a query and what was forgotten since its keys; with ``pro``, shifts, norms and gates."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    if net.pro:
        shares = (x @ net.shift.weight).sigmoid().mT.unsqueeze(-1)  # [batch, key's and value's of each head, length, 1]
        k = divide_by_rms(shifted(k, shares[:, 0::2])) * net.k_gain
        q, v = divide_by_rms(q) * net.q_gain, shifted(v, shares[:, 1::2])
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
    """The share of the row before in every row of a head."""
    before = torch.cat([0 * x[:, :, :1], x[:, :, :-1]], dim=2)
    return share * before + (1 - share) * x


def turned_keys(net: Path, x: Tensor) -> Tensor:
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
        before = keys - beta[:, :, t, None, None] * (keys @ w_t) @ w_t.mT
        keys = torch.cat([before, k[:, :, t : t + 1]], dim=-2)
        weights = (torch.einsum("bhd,bhsd->bhs", q[:, :, t], keys) / 6**0.5).softmax(-1)
        outs.append(torch.einsum("bhs,bhsd->bhd", weights, v[:, :, : t + 1]))
    return merged(net, outs)


def retained(q: Tensor, k: Tensor, v: Tensor, gammas: list[float]) -> Tensor:
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


def gated_retention(net: Retention, x: Tensor) -> Tensor:
    """The paper's form of turned queries and keys, with a gate behind the norm."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    heads = retained(turned(q), turned(k), v, [1 - 2**-5, 1 - 2**-6])
    y = heads_of(x @ net.gate.weight)
    return merged(net, list((heads * y * y.sigmoid()).unbind(2)))


def filters_of(net: Hyena, length: int) -> Tensor:
    """The filter of each channel, value by value: [length, channels]."""
    rows = []
    for t in range(length):
        r, angle = t / (net.max_length - 1), 2 * math.pi * 1e-4 * t / net.max_length
        units = torch.tensor([r, math.cos(angle), -math.sin(angle)], dtype=torch.float64)
        for layer in (net.first, net.second, net.third):
            assert layer.bias is not None
            units = (net.frequency.flatten() * (units @ layer.weight + layer.bias)).sin()
        steepness = torch.linspace(1 / 1.5, 1 / 0.3, net.model_dim, dtype=torch.float64)
        rows.append(units @ net.last.weight * 0.01 ** (r * steepness))
    return torch.stack(rows)


def gated_sums(net: Hyena, x: Tensor) -> Tensor:
    """Each output as the sum over the tokens up to it."""
    fused = net.project_in(x)
    if net.own_convolution is not None:
        fused = summed_taps(net.own_convolution, fused)
    u, a, v = fused.chunk(3, dim=-1)
    z, h = a * v, filters_of(net, x.shape[1])
    outs = [
        u[:, t] * (sum(h[t - s] * z[:, s] for s in range(t + 1)) + net.skip.flatten() * z[:, t])
        for t in range(x.shape[1])
    ]
    return merged(net, outs)


WITH_WINDOW: dict[str, Any] = {"window": [5, 64], "is_turned": [True]}
CASES = [
    *every(Identity, two_projections, length=[20]),
    *every(Based, taylor_and_window, length=[1, 9, 40], width=[8], num_heads=[2], **WITH_WINDOW),
    *every(Based, taylor_and_window, length=[1, 9, 40], width=[12], num_heads=[3], **WITH_WINDOW),
    *every(
        Differential, difference_of_softmaxes, length=[1, 9], layout=["split"], width=[12], num_heads=[2],
        initial=[0.3], is_turned=[True],
    ),
    *every(
        Differential, difference_of_softmaxes, length=[1, 9], layout=["authors"], width=[24], num_heads=[4],
        initial=[0.3], is_turned=[True],
    ),
    *every(Forgetting, scores_and_forgetting, length=[1, 2, 9], pro=[False]),
    *every(Forgetting, scores_and_forgetting, length=[1, 2, 9], pro=[True], is_turned=[False, True]),
    *every(Path, turned_keys, length=[1, 2, 33, 70], condition=BOTH),
    *every(Retention, gated_retention, length=[1, 9, 70], is_turned=[True]),  # the last in chunks
    *every(Hyena, gated_sums, length=[1, 9], max_length=[9], filter_dim=[10], condition=BOTH),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "loop", "given"), CASES)
def test_a_layer_and_its_gradients_are_the_formulas(unit: type[Mechanism], loop: Loop, given: dict[str, Any]) -> None:
    check_loop(unit, loop, **given)


@pytest.mark.parametrize("name", ["differential", "softmax+differential"])
def test_lambda_of_differential_attention_begins_by_the_depth_of_the_layer(name: str) -> None:
    option = name.partition("+")[2] and "differential_layout"
    values = {"model_dim": 16, "num_heads": 4, "max_length": 8, "bias": False}
    layers = MECHANISMS[name].layers_of(values, 4)

    starts = {depth: made["initial"] for depth, (unit, made) in enumerate(layers) if unit is Differential}
    assert starts == pytest.approx({depth: 0.8 - 0.6 * math.exp(-0.3 * depth) for depth in starts})
    assert len(starts) == (2 if option else 4)
    split = MECHANISMS[name].layers_of({**values, option or "layout": "split"}, 4)
    assert all("initial" not in made for _unit, made in split)
