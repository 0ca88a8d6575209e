import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from synthbench.forms import selective_scan
from synthbench.mechanisms.mamba1 import Mamba1
from tests.mechanisms.loops import check_loop, summed_taps
from tests.tensors import normal


def step_by_step(mamba: Mamba1, x: Tensor) -> Tensor:
    """The model of one sequence batch, token by token, from the formulas of its docstring."""
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


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize(
    ("length", "block", "is_cached"), [(1, 256, True), (20, 256, True), (20, 9, True), (20, 9, False), (5, 1, False)]
)
def test_blocks_agree_with_single_steps_and_so_do_gradients(
    length: int, block: int, condition: str, *, is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selective_scan, "SEGMENT", block)
    monkeypatch.setattr(selective_scan, "_is_cached", lambda _x: is_cached)
    check_loop(Mamba1, step_by_step, length, condition, width=8, N=3, rank=2)


def test_a_block_fits_the_caches_of_a_cpu() -> None:
    x = normal(2, 300, 64)

    assert [rows.stop - rows.start for rows in selective_scan._blocks(x, 16)] == [128, 128, 44]
    assert [rows.stop - rows.start for rows in selective_scan._blocks(x, 2**18)] == [1] * 300
