from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, silu, softplus

from synthbench.errors import UsageError
from synthbench.mechanisms.mamba2 import Mamba2
from tests.mechanisms.loops import agree, bare, moved, undecayed


def step_by_step(mamba: Mamba2, x: Tensor) -> Tensor:
    """The model of one sequence batch, token by token, from the formulas of its docstring."""
    batch, length, _ = x.shape
    heads, inner, width = mamba.num_heads, mamba.inner_dim, mamba.N
    fused = mamba.project_in(x)
    gate, channels, step = fused[..., :inner], fused[..., inner : 2 * inner + 2 * width], fused[..., -heads:]
    taps = mamba.taps.mT.unsqueeze(1)
    past = torch.nn.functional.pad(channels.mT, (mamba.conv_width - 1, 0))
    channels = silu(conv1d(past, taps, mamba.taps_bias, groups=len(taps)).mT)
    state, outs = torch.zeros(batch, heads, width, inner // heads, dtype=x.dtype), []
    for t in range(length):
        values = channels[:, t, :inner].view(batch, heads, -1)
        b, c = channels[:, t, inner : inner + width], channels[:, t, inner + width :]
        delta = softplus(step[:, t] + mamba.step_bias)
        decay = torch.exp(-mamba.log_rate.exp() * delta)
        state = decay[..., None, None] * state + torch.einsum("bh,bn,bhp->bhnp", delta, b, values)
        outs.append((torch.einsum("bhnp,bn->bhp", state, c) + mamba.skip[:, None] * values).flatten(1))
    gated = torch.stack(outs, dim=1) * silu(gate)
    out: Tensor = mamba.out(gated / (gated.square().mean(-1, keepdim=True) + 1e-5).sqrt() * mamba.scale)
    return out


@pytest.mark.parametrize("options", [{}, bare(Mamba2)])
@pytest.mark.parametrize("length", [1, 3, 70])
def test_chunks_agree_with_single_steps_and_so_do_gradients(
    length: int, options: dict[str, Any], normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    mamba = Mamba2(model_dim=8, num_heads=2, N=3, generator=generator, **options)
    moved(mamba, scale=0.1)
    x = normal(2, length, 8).requires_grad_()

    agree(mamba, x, step_by_step(mamba, x))


def test_initial_steps_and_rates_lie_in_the_published_ranges(generator: torch.Generator) -> None:
    mamba = Mamba2(num_heads=64, generator=generator)
    step, rate = softplus(mamba.step_bias), mamba.log_rate.exp()

    assert 1e-3 - 1e-6 <= step.min() < 2e-3
    assert 0.05 < step.max() <= 0.1 + 1e-6
    assert 1 <= rate.min() < 2
    assert 14 < rate.max() <= 16
    assert (mamba.skip == 1).all()


def test_heads_that_do_not_divide_the_channels_are_refused() -> None:
    with pytest.raises(UsageError, match="num_heads is 3; allowed: a divisor of expand x width, 128"):
        Mamba2(num_heads=3)


@pytest.mark.parametrize("bias", [True, False])
def test_stock_has_the_biases_and_the_weight_decay_of_its_authors(*, bias: bool) -> None:
    stock, plain = Mamba2(bias=bias), Mamba2(bias=bias, **bare(Mamba2))

    assert {name for name, _ in stock.named_parameters() if "bias" in name} == {"step_bias", "taps_bias"}
    assert len([name for name, _ in plain.named_parameters() if "bias" in name]) == (4 if bias else 1)
    assert undecayed(stock) == {"log_rate", "skip", "step_bias"}
    assert not undecayed(plain)
