"""Layers with a state, against loops that go token by token from the formulas of their docstrings."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, layer_norm, pad, silu, softplus

from synthbench.forms import selective_scan
from synthbench.mechanisms import Mechanism
from synthbench.mechanisms.deltanet import Deltanet
from synthbench.mechanisms.deltaproduct import Deltaproduct
from synthbench.mechanisms.gated_deltanet import GatedDeltanet
from synthbench.mechanisms.gla import Gla
from synthbench.mechanisms.hgrn2 import Hgrn2
from synthbench.mechanisms.kda import Kda
from synthbench.mechanisms.lstm import Lstm
from synthbench.mechanisms.mamba1 import Mamba1
from synthbench.mechanisms.mamba2 import Mamba2
from synthbench.mechanisms.mean import Mean
from synthbench.mechanisms.mlstm import Mlstm
from synthbench.mechanisms.rwkv7 import Rwkv7
from synthbench.mechanisms.slstm import HeadwiseLinear, Slstm
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
)
from tests.tensors import normal

BOTH = ["bare", "stock"]
SIGNS = ["zero-one", "signed"]


def means(net: Mean, x: Tensor) -> Tensor:
    values = net.value(x)
    return merged(net, [values[:, : t + 1].mean(1) for t in range(x.shape[1])])


def lstm_cells(net: Lstm, x: Tensor) -> Tensor:
    h, c, outs = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        g, i, f, o = (net.gates(x[:, t]) + h @ net.recurrent.weight).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outs.append(h)
    return merged(net, outs)


def delta_steps(net: Deltanet, x: Tensor) -> Tensor:
    """Without a convolution there is no SiLU either."""
    q, k, v = map(heads_of, net.qkv(x).chunk(3, dim=-1)) if net.own_convolution is None else convolved_heads(net, x)
    beta = (2 if net.eigenvalues == "signed" else 1) * (x @ net.rate.weight).sigmoid().unsqueeze(-1)
    return normed_and_gated(net, x, delta_rule(q, [k], [v], beta, torch.ones(3, 2, x.shape[1], 1)), 1e-6)


def gated_delta_steps(net: GatedDeltanet, x: Tensor) -> Tensor:
    """The gates of Gated DeltaNet are of heads, and those of KDA of channels."""
    beta = (2 if net.eigenvalues == "signed" else 1) * (x @ net.rate.weight).sigmoid().unsqueeze(-1)
    gates = x @ net.gate_in.weight @ net.gate_out.weight if isinstance(net, Kda) else x @ net.gate.weight
    alpha = torch.exp(-net.log_rate.exp() * softplus(heads_of(gates) + net.gate_bias))
    q, k, v = convolved_heads(net, x)
    return normed_and_gated(net, x, delta_rule(q, [k], [v], beta, alpha))


def householder_steps(net: Deltaproduct, x: Tensor) -> Tensor:
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


def gla_steps(net: Gla, x: Tensor) -> Tensor:
    q, k, v = map(heads_of, net.qkv(x).chunk(3, dim=-1))
    assert net.gate_out.bias is not None
    alpha = (x @ net.gate_in.weight @ net.gate_out.weight + net.gate_out.bias).sigmoid() ** (1 / net.tau)
    heads = torch.stack(decaying_sum(k, v, heads_of(alpha), q), dim=2) / 6**0.5
    if not net.output_gate:
        return merged(net, list(divide_by_rms(heads, 1e-6).unbind(2)))
    y = heads_of(x @ net.out_gate.weight)
    return merged(net, list((divide_by_rms(heads, 1e-5) * net.gain.weight * y * y.sigmoid()).unbind(2)))


def hgrn2_steps(net: Hgrn2, x: Tensor) -> Tensor:
    """The norm is of each head or of all."""
    o, f, i = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    g = net.lower + (1 - net.lower) * f.sigmoid()
    outs = decaying_sum(1 - g, i, g, silu(o))
    if net.norm == "head":
        return merged(net, [divide_by_rms(out) for out in outs])
    return merged(net, [divide_by_rms(out.flatten(-2) / 6**0.5) * net.gain.weight for out in outs])


def mamba1_steps(mamba: Mamba1, x: Tensor) -> Tensor:
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
    projected: Tensor = mamba.out(torch.stack(outs, dim=1) * silu(gate))
    return projected


def mamba2_steps(mamba: Mamba2, x: Tensor) -> Tensor:
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
    out: Tensor = mamba.out(divide_by_rms(gated) * mamba.scale)
    return out


def mlstm_cells(net: Mlstm, x: Tensor) -> Tensor:
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


def with_small_gates(net: Mlstm) -> None:
    net.gates.weight.copy_(0.3 * normal(len(net.gates.weight), 4, seed=1))


def with_large_gates(net: Mlstm) -> None:
    net.gates.weight.copy_(10 * normal(len(net.gates.weight), 4, seed=1))


def slstm_cells(net: Slstm, x: Tensor) -> Tensor:
    """The cell has c and n, and no stabiliser here."""
    seen = x if net.own_convolution is None else silu(summed_taps(net.own_convolution, x))
    # The columns of a head belong to z, i, f and o.
    weight = torch.block_diag(*net.gates.weight) if isinstance(net.gates, HeadwiseLinear) else net.gates.weight
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
    projected: Tensor = normed if net.out is None else net.out(normed)
    return projected


def mixes_of(net: Rwkv7, x: Tensor) -> list[Tensor]:
    """The token mixes from which r, w, k, v, a and g are projected."""
    if net.shift is None:
        return [x] * 6
    before = torch.cat([0 * x[:, :1], x[:, :-1]], dim=1)
    return [x + mix * (before - x) for mix in net.shift.weight]


def time_mixing(net: Rwkv7, x: Tensor) -> Tensor:
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


CASES = [
    *every(Mean, means, length=[20]),
    *every(Lstm, lstm_cells, length=[1, 9]),
    *every(Deltanet, delta_steps, length=[1, 2, 40], eigenvalues=SIGNS, condition=["bare"]),
    *every(Deltanet, delta_steps, length=[1, 2, 40], eigenvalues=SIGNS, output_gate=[False, True]),
    *every(GatedDeltanet, gated_delta_steps, length=[1, 2, 40], eigenvalues=SIGNS, condition=BOTH),
    *every(Kda, gated_delta_steps, length=[1, 2, 40], eigenvalues=SIGNS, condition=BOTH),
    *every(Deltaproduct, householder_steps, length=[1, 20], steps=[2], gate=["head", "none"], condition=BOTH),
    *every(Deltaproduct, householder_steps, length=[2, 20], steps=[3], gate=["head"], condition=BOTH),
    *every(Deltaproduct, householder_steps, length=[40], steps=[1], gate=["head"], condition=BOTH),
    *every(Gla, gla_steps, length=[1, 40], tau=[16.0, 32.0], condition=BOTH),
    *every(Hgrn2, hgrn2_steps, length=[1, 40], lower=[0.0, 0.3], condition=BOTH),
    *every(Mamba2, mamba2_steps, length=[1, 3, 40], width=[8], N=[3], condition=BOTH),
    *every(Mlstm, mlstm_cells, length=[1, 40], change=[with_small_gates, with_large_gates], condition=BOTH),
    *every(Slstm, slstm_cells, length=[1, 9], width=[6], scale=[1.0], condition=BOTH),
    *every(Rwkv7, time_mixing, length=[1, 40], gate_rank=[5], condition=BOTH),
]


@pytest.mark.parametrize(("unit", "loop", "given"), CASES)
def test_a_layer_and_its_gradients_are_the_formulas(unit: type[Mechanism], loop: Loop, given: dict[str, Any]) -> None:
    check_loop(unit, loop, **given)


@pytest.mark.parametrize("condition", BOTH)
@pytest.mark.parametrize(
    ("length", "block", "is_cached"), [(1, 256, True), (20, 256, True), (20, 9, True), (20, 9, False), (5, 1, False)]
)
def test_blocks_of_mamba1_agree_with_single_steps_and_so_do_gradients(
    length: int, block: int, condition: str, *, is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selective_scan, "SEGMENT", block)
    monkeypatch.setattr(selective_scan, "_is_cached", lambda _x: is_cached)
    check_loop(Mamba1, mamba1_steps, length, condition, width=8, N=3, rank=2)


def test_a_block_of_mamba1_fits_the_caches_of_a_cpu() -> None:
    x = normal(2, 300, 64)

    assert [rows.stop - rows.start for rows in selective_scan._blocks(x, 16)] == [128, 128, 44]
    assert [rows.stop - rows.start for rows in selective_scan._blocks(x, 2**18)] == [1] * 300


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
