import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, silu, softplus

from synthbench.mechanisms.mamba2 import Mamba2
from tests.mechanisms.loops import check_loop


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


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize("length", [1, 3, 40])
def test_chunks_agree_with_single_steps_and_so_do_gradients(length: int, condition: str) -> None:
    check_loop(Mamba2, step_by_step, length, condition, width=8, N=3)
