"""Layers against loops that go token by token or query by query from the formulas of their docstrings."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, layer_norm, pad, silu, softplus

from synthbench.forms import selective_scan
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.gla import Gla
from synthbench.mechanisms.mlstm import Mlstm
from synthbench.mechanisms.slstm import Slstm
from tests.mechanisms.loops import (
    Loop,
    check_loop,
    convolved_heads,
    decaying_sum,
    delta_rule,
    divide_by_rms,
    every,
    heads_of,
    merged,
    normed_and_gated,
    summed_taps,
    turned,
)
from tests.tensors import normal

BOTH = ["bare", "stock"]
SIGNS = ["zero-one", "signed"]


def means(net: Any, x: Tensor) -> Any:
    values = net.value(x)
    return merged(net, [values[:, : t + 1].mean(1) for t in range(x.shape[1])])


def lstm_cells(net: Any, x: Tensor) -> Any:
    h, c, outs = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        g, i, f, o = (net.gates(x[:, t]) + h @ net.recurrent.weight).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outs.append(h)
    return merged(net, outs)


def delta_steps(net: Any, x: Tensor) -> Any:
    """Without a convolution there is no SiLU either."""
    q, k, v = map(heads_of, net.qkv(x).chunk(3, dim=-1)) if net.own_convolution is None else convolved_heads(net, x)
    beta = (2 if net.eigenvalues == "signed" else 1) * (x @ net.rate.weight).sigmoid().unsqueeze(-1)
    return normed_and_gated(net, x, delta_rule(q, [k], [v], beta, torch.ones(3, 2, x.shape[1], 1)), 1e-6)


def gated_delta_steps(net: Any, x: Tensor) -> Any:
    """The gates of Gated DeltaNet are of heads, and those of KDA of channels."""
    beta = (2 if net.eigenvalues == "signed" else 1) * (x @ net.rate.weight).sigmoid().unsqueeze(-1)
    gates = x @ net.gate_in.weight @ net.gate_out.weight if net.name == "kda" else x @ net.gate.weight
    alpha = torch.exp(-net.log_rate.exp() * softplus(heads_of(gates) + net.gate_bias))
    q, k, v = convolved_heads(net, x)
    return normed_and_gated(net, x, delta_rule(q, [k], [v], beta, alpha))


def householder_steps(net: Any, x: Tensor) -> Any:
    """A product of Householder steps at every token, one by one."""
    q, k, v = convolved_heads(net, x)
    keys, values, steps = [k], [v], net.steps
    if net.others is not None:
        others = net.others(x) if net.others_convolution is None else summed_taps(net.others_convolution, net.others(x))
        other_keys, other_values = heads_of(silu(others)).chunk(2, dim=-1)
        keys += other_keys.chunk(steps - 1, dim=-1)
        values += other_values.chunk(steps - 1, dim=-1)
    beta = 2 * (x @ net.rate.weight).sigmoid().unflatten(-1, (2, steps))
    alpha = torch.ones(3, 2, x.shape[1], 1, dtype=x.dtype)
    if net.gate == "head":
        steps_of = softplus(x @ net.forget.weight + net.gate_bias.flatten())
        alpha = torch.exp(-net.log_rate.exp().flatten() * steps_of).mT.unsqueeze(-1)
    return normed_and_gated(net, x, delta_rule(q, keys, values, beta, alpha))


def gla_steps(net: Any, x: Tensor) -> Any:
    q, k, v = map(heads_of, net.qkv(x).chunk(3, dim=-1))
    alpha = (x @ net.gate_in.weight @ net.gate_out.weight + net.gate_out.bias).sigmoid() ** (1 / net.tau)
    heads = torch.stack(decaying_sum(k, v, heads_of(alpha), q), dim=2) / 6**0.5
    if not net.output_gate:
        return merged(net, list(divide_by_rms(heads, 1e-6).unbind(2)))
    y = heads_of(x @ net.out_gate.weight)
    return merged(net, list((divide_by_rms(heads, 1e-5) * net.gain.weight * y * y.sigmoid()).unbind(2)))


def hgrn2_steps(net: Any, x: Tensor) -> Any:
    """The norm is of each head or of all."""
    o, f, i = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    g = net.lower + (1 - net.lower) * f.sigmoid()
    outs = decaying_sum(1 - g, i, g, silu(o))
    if net.norm == "head":
        return merged(net, [divide_by_rms(out) for out in outs])
    return merged(net, [divide_by_rms(out.flatten(-2) / 6**0.5) * net.gain.weight for out in outs])


def mamba1_steps(mamba: Any, x: Tensor) -> Any:
    width = mamba.N
    gate, channels = mamba.project_in(x).chunk(2, dim=-1)
    channels = silu(channels if mamba.own_convolution is None else summed_taps(mamba.own_convolution, channels))
    fused = channels @ mamba.read.weight
    delta, b, c = fused[..., : -2 * width], fused[..., -2 * width : -width], fused[..., -width:]
    step = softplus(delta @ mamba.step.weight + mamba.step_bias.flatten())
    state, outs = torch.zeros(len(x), mamba.inner_dim, width, dtype=x.dtype), []
    for t in range(x.shape[1]):
        decay = torch.exp(-mamba.log_rate[0, 0].exp() * step[:, t, :, None])
        state = decay * state + (step * channels)[:, t, :, None] * b[:, t, None, :]
        outs.append((state * c[:, t, None, :]).sum(-1) + mamba.skip.flatten() * channels[:, t])
    return mamba.out(torch.stack(outs, dim=1) * silu(gate))


def mamba2_steps(mamba: Any, x: Tensor) -> Any:
    heads, inner, width = mamba.num_heads, mamba.inner_dim, mamba.N
    fused = mamba.project_in(x)
    gate, channels, step = fused[..., :inner], fused[..., inner : 2 * inner + 2 * width], fused[..., -heads:]
    past, taps = pad(channels.mT, (mamba.conv_width - 1, 0)), mamba.taps.mT.unsqueeze(1)
    channels = silu(conv1d(past, taps, mamba.taps_bias, groups=len(taps)).mT)
    state, outs = torch.zeros(len(x), heads, width, inner // heads, dtype=x.dtype), []
    for t in range(x.shape[1]):
        values = channels[:, t, :inner].view(len(x), heads, -1)
        b, c = channels[:, t, inner : inner + width], channels[:, t, inner + width :]
        delta = softplus(step[:, t] + mamba.step_bias)
        decay = torch.exp(-mamba.log_rate.exp() * delta)
        state = decay[..., None, None] * state + torch.einsum("bh,bn,bhp->bhnp", delta, b, values)
        outs.append((torch.einsum("bhnp,bn->bhp", state, c) + mamba.skip[:, None] * values).flatten(1))
    gated = torch.stack(outs, dim=1) * silu(gate)
    return mamba.out(divide_by_rms(gated) * mamba.scale)


def mlstm_cells(net: Any, x: Tensor) -> Any:
    """The cell has no stabiliser here."""
    is_bare = net.token_convolution is None
    seen = x if net.token_convolution is None else silu(summed_taps(net.token_convolution, x))
    weights = net.qkv.weight.chunk(3, dim=1)
    biases = (torch.zeros(36) if net.qkv.bias is None else net.qkv.bias).chunk(3)
    q, k, v = (part @ weight + bias for part, weight, bias in zip((seen, seen, x), weights, biases, strict=True))
    i, f = ((x if is_bare else torch.cat([q, k, v], dim=-1)) @ net.gates.weight).chunk(2, dim=-1)
    i, f = (i + net.input_bias.flatten()).exp(), (f + net.forget_bias.flatten()).sigmoid()
    q, k, v = map(heads_of, (q, k, v))
    z = heads_of(net.output_gate(x))
    gate = z.sigmoid() if is_bare else z * z.sigmoid()
    c, n, outs = torch.zeros(3, 2, 6, 6, dtype=x.dtype), torch.zeros(3, 2, 6, dtype=x.dtype), []
    for t in range(x.shape[1]):
        key = i[:, t, :, None] * k[:, :, t] / 6**0.5
        c = f[:, t, :, None, None] * c + key[..., None] * v[:, :, t, None, :]
        n = f[:, t, :, None] * n + key
        read = torch.einsum("bhk,bhkv->bhv", q[:, :, t], c)
        normaliser = (n * q[:, :, t]).sum(-1, keepdim=True).abs().clamp(min=1)
        out = layer_norm(read / normaliser, (6,))
        if net.gain is not None and net.skip is not None:
            out = net.gain[:, 0] * out + net.skip[:, 0] * heads_of(seen)[:, :, t]
        outs.append(gate[:, :, t] * out)
    return merged(net, outs)


def with_small_gates(net: Any) -> None:
    net.gates.weight.copy_(0.3 * normal(len(net.gates.weight), 4, seed=1))


def with_large_gates(net: Any) -> None:
    net.gates.weight.copy_(10 * normal(len(net.gates.weight), 4, seed=1))


def slstm_cells(net: Any, x: Tensor) -> Any:
    """The cell has c and n, and no stabiliser here."""
    seen = x if net.own_convolution is None else silu(summed_taps(net.own_convolution, x))
    # The columns of a head belong to z, i, f and o.
    weight = torch.block_diag(*net.gates.weight) if net.gates.weight.ndim == 3 else net.gates.weight
    columns = weight.view(6, 2, 4, 3).unbind(-2)
    biases = net.gates_bias.view(2, 4, 3).unbind(-2)
    z, i, f, o = (
        torch.einsum("btd,dhs->bths", read, column) + bias
        for read, column, bias in zip((x, seen, seen, x), columns, biases, strict=True)
    )
    h, c, n = (torch.zeros(len(x), 2, 3, dtype=x.dtype) for _ in range(3))
    outs = []
    for t in range(x.shape[1]):
        rz, ri, rf, ro = torch.einsum("bhs,hsg->bhg", h, net.recurrent).chunk(4, dim=-1)
        forget, enter = (f[:, t] + rf).sigmoid(), (i[:, t] + ri).exp()
        c, n = forget * c + enter * (z[:, t] + rz).tanh(), forget * n + enter
        h = (o[:, t] + ro).sigmoid() * c / n
        outs.append(layer_norm(h, (3,)).flatten(-2))
    normed = torch.stack(outs, dim=1)
    normed = normed if net.gain is None else normed * net.gain.flatten()
    return normed if net.out is None else net.out(normed)


def mixes_of(net: Any, x: Tensor) -> list[Tensor]:
    """The token mixes from which r, w, k, v, a and g are projected."""
    if net.shift is None:
        return [x] * 6
    before = torch.cat([0 * x[:, :1], x[:, :-1]], dim=1)
    return [x + mix * (before - x) for mix in net.shift.weight]


def time_mixing(net: Any, x: Tensor) -> Any:
    """The time mixing of x070, with the state transposed."""
    xr, xw, xk, xv, xa, xg = mixes_of(net, x)
    weights = net.qkv.weight.chunk(3, dim=1)
    biases = (torch.zeros(36) if net.qkv.bias is None else net.qkv.bias).chunk(3)
    r, k, v = (heads_of(x @ weight + bias) for x, weight, bias in zip((xr, xk, xv), weights, biases, strict=True))
    decay = heads_of((xw @ net.decay_in.weight).tanh() @ net.decay_out.weight) + net.decay_bias
    w = torch.exp(-torch.exp(torch.tensor(-0.5, dtype=x.dtype)) * decay.sigmoid())
    a = (heads_of(xa @ net.rate_in.weight @ net.rate_out.weight) + net.rate_bias).sigmoid()
    kappa = k * net.removal
    kappa = kappa / kappa.norm(dim=-1, keepdim=True)
    added = k * (1 + (a - 1) * net.mixing)
    g = torch.ones_like(v)
    if net.gate_in is not None and net.gate_out is not None:
        g = heads_of((xg @ net.gate_in.weight).sigmoid() @ net.gate_out.weight)
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    for t in range(x.shape[1]):
        transition = torch.diag_embed(w[:, :, t]) - (a * kappa)[:, :, t, :, None] * kappa[:, :, t, None, :]
        state = transition @ state + added[:, :, t, :, None] * v[:, :, t, None, :]
        read = layer_norm(torch.einsum("bhk,bhkv->bhv", r[:, :, t], state), (6,), eps=6e-5)
        if net.gain is not None and net.offset is not None:
            read = read * net.gain[:, 0] + net.offset[:, 0]
        bonus = (r * added * net.bonus)[:, :, t].sum(-1, keepdim=True)
        outs.append((read + bonus * v[:, :, t]) * g[:, :, t])
    return merged(net, outs)


RECURRENT = [
    *every("mean", means, length=[20]),
    *every("lstm", lstm_cells, length=[1, 9]),
    *every("deltanet", delta_steps, length=[1, 2, 40], eigenvalues=SIGNS, condition=["bare"]),
    *every("deltanet", delta_steps, length=[1, 2, 40], eigenvalues=SIGNS, output_gate=[False, True]),
    *every("gated-deltanet", gated_delta_steps, length=[1, 2, 40], eigenvalues=SIGNS, condition=BOTH),
    *every("kda", gated_delta_steps, length=[1, 2, 40], eigenvalues=SIGNS, condition=BOTH),
    *every("deltaproduct", householder_steps, length=[1, 20], steps=[2], gate=["head", "none"], condition=BOTH),
    *every("deltaproduct", householder_steps, length=[2, 20], steps=[3], gate=["head"], condition=BOTH),
    *every("deltaproduct", householder_steps, length=[40], steps=[1], gate=["head"], condition=BOTH),
    *every("gla", gla_steps, length=[1, 40], tau=[16.0, 32.0], condition=BOTH),
    *every("hgrn2", hgrn2_steps, length=[1, 40], lower=[0.0, 0.3], condition=BOTH),
    *every("mamba2", mamba2_steps, length=[1, 3, 40], width=[8], N=[3], condition=BOTH),
    *every("mlstm", mlstm_cells, length=[1, 40], change=[with_small_gates, with_large_gates], condition=BOTH),
    *every("slstm", slstm_cells, length=[1, 9], width=[6], scale=[1.0], condition=BOTH),
    *every("rwkv7", time_mixing, length=[1, 40], gate_rank=[5], condition=BOTH),
]


@pytest.mark.parametrize("condition", BOTH)
@pytest.mark.parametrize(
    ("length", "block", "is_cached"), [(1, 256, True), (20, 256, True), (20, 9, True), (20, 9, False), (5, 1, False)]
)
def test_blocks_of_mamba1_agree_with_single_steps_and_so_do_gradients(
    length: int, block: int, condition: str, *, is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selective_scan, "SEGMENT", block)
    monkeypatch.setattr(selective_scan, "_is_cached", lambda _x: is_cached)
    check_loop("mamba1", mamba1_steps, length, condition, width=8, N=3, rank=2)


def test_without_gates_gla_is_linear_attention_without_a_feature_map() -> None:
    q, k, v = (normal(2, 4, 100, 16, seed=seed) for seed in range(3))

    expected = divide_by_rms((q @ k.mT).tril() @ v / 4, 1e-6)

    torch.testing.assert_close(Gla().attend(q, k, v), expected)
    torch.testing.assert_close(Gla().attend(q, k, v, torch.zeros_like(k)), expected)


def test_gates_of_a_thousand_neither_overflow_nor_lose_the_last_value(generator: torch.Generator) -> None:
    q, k, v = (normal(1, 2, 70, 6, seed=seed).float() for seed in range(3))
    log_input = torch.linspace(0, 1e3, 70).view(1, 1, -1, 1).expand(1, 2, -1, -1)

    out = Mlstm().attend(q, k, v, log_input, torch.zeros_like(log_input))

    assert out.isfinite().all()
    signs = (q * k).sum(-1, keepdim=True).sign()
    torch.testing.assert_close(out[..., -1:, :], layer_norm(signs * v, (6,))[..., -1:, :], rtol=1e-3, atol=1e-3)
    slstm = Slstm(model_dim=6, num_heads=2, generator=generator)
    assert slstm(1e3 * torch.randn(2, 40, 6, generator=generator)).isfinite().all()


def two_projections(net: Any, x: Tensor) -> Any:
    return (x @ net.value.weight + net.value.bias) @ net.out.weight + net.out.bias


def taylor_and_window(net: Any, x: Tensor) -> Any:
    """A gated convolution, then Taylor heads and turned heads with a window, one by one."""
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


def difference_of_softmaxes(net: Any, x: Tensor) -> Any:
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


def scores_and_forgetting(net: Any, x: Tensor) -> Any:
    """All scores of a query and what was forgotten since its keys; with ``pro``, shifts, norms and gates."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    if net.pro:
        shares = (x @ net.shift.weight).sigmoid().mT.unsqueeze(-1)  # [batch, key's and value's of each head, length, 1]
        k = divide_by_rms(shifted(k, shares[:, 0::2])) * net.k_gain
        q, v = divide_by_rms(q) * net.q_gain, shifted(v, shares[:, 1::2])
    if net.rotation is not None:
        q, k = turned(q), turned(k)
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


def turned_keys(net: Any, x: Tensor) -> Any:
    """Keys pass the matrix of each token, then the query attends."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    directions = x @ net.direction_in.weight @ net.direction_out.weight
    if net.direction_convolution is not None:
        assert net.direction_convolution.weight.shape == (3, 12)
        directions = silu(summed_taps(net.direction_convolution, directions))
    w = heads_of(directions)
    w = w / w.norm(dim=-1, keepdim=True)
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


def gated_retention(net: Any, x: Tensor) -> Any:
    """The paper's form of turned queries and keys, with a gate behind the norm."""
    q, k, v = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    heads = retained(turned(q), turned(k), v, [1 - 2**-5, 1 - 2**-6])
    y = heads_of(x @ net.gate.weight)
    return merged(net, list((heads * y * y.sigmoid()).unbind(2)))


def filters_of(net: Any, length: int) -> Tensor:
    """The filter of each channel, value by value: [length, channels]."""
    rows = []
    for t in range(length):
        r, angle = t / (net.max_length - 1), 2 * math.pi * 1e-4 * t / net.max_length
        units = torch.tensor([r, math.cos(angle), -math.sin(angle)], dtype=torch.float64)
        for layer in (net.first, net.second, net.third):
            units = (net.frequency.flatten() * (units @ layer.weight + layer.bias)).sin()
        steepness = torch.linspace(1 / 1.5, 1 / 0.3, net.model_dim, dtype=torch.float64)
        rows.append(units @ net.last.weight * 0.01 ** (r * steepness))
    return torch.stack(rows)


def gated_sums(net: Any, x: Tensor) -> Any:
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
PAIRWISE = [
    *every("identity", two_projections, length=[20]),
    *every("based", taylor_and_window, length=[1, 9, 40], width=[8], num_heads=[2], **WITH_WINDOW),
    *every("based", taylor_and_window, length=[1, 9, 40], width=[12], num_heads=[3], **WITH_WINDOW),
    *every(
        "differential", difference_of_softmaxes, length=[1, 9], layout=["split"], width=[12], num_heads=[2],
        initial=[0.3], is_turned=[True],
    ),
    *every(
        "differential", difference_of_softmaxes, length=[1, 9], layout=["authors"], width=[24], num_heads=[4],
        initial=[0.3], is_turned=[True],
    ),
    *every("forgetting", scores_and_forgetting, length=[1, 2, 9], pro=[False]),
    *every("forgetting", scores_and_forgetting, length=[1, 2, 9], pro=[True], is_turned=[False, True]),
    *every("path", turned_keys, length=[1, 2, 33, 70], condition=BOTH),
    *every("retention", gated_retention, length=[1, 9, 70], is_turned=[True]),  # the last in chunks
    *every("hyena", gated_sums, length=[1, 9], max_length=[9], filter_dim=[10], condition=BOTH),
]  # fmt: skip


@pytest.mark.parametrize(("name", "loop", "given"), RECURRENT + PAIRWISE)
def test_a_layer_and_its_gradients_are_the_formulas(name: str, loop: Loop, given: dict[str, Any]) -> None:
    check_loop(name, loop, **given)


@pytest.mark.parametrize("name", ["differential", "softmax+differential"])
def test_lambda_of_differential_attention_begins_by_the_depth_of_the_layer(name: str) -> None:
    option = name.partition("+")[2] and "differential_layout"
    values = {"model_dim": 16, "num_heads": 4, "max_length": 8, "bias": False}
    layers = MECHANISMS[name].layers_of(values, 4)

    starts = {depth: made["initial"] for depth, (unit, made) in enumerate(layers) if unit.name == "differential"}
    assert starts == pytest.approx({depth: 0.8 - 0.6 * math.exp(-0.3 * depth) for depth in starts})
    assert len(starts) == (2 if option else 4)
    split = MECHANISMS[name].layers_of({**values, option or "layout": "split"}, 4)
    assert all("initial" not in made for _unit, made in split)
