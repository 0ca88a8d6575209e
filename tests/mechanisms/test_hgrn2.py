from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from synthbench.mechanisms.hgrn2 import Hgrn2
from tests.mechanisms.loops import agree, divide_by_rms, heads_of, merged


@pytest.mark.parametrize("lower", [0.0, 0.3])
@pytest.mark.parametrize("length", [1, 75])
def test_forward_is_the_gated_recurrence_step_by_step(
    length: int, lower: float, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Hgrn2(model_dim=12, num_heads=2, lower=lower, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    o, f, i = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    g = lower + (1 - lower) * f.sigmoid()
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    for t in range(length):
        state = g[:, :, t, :, None] * state + (1 - g)[:, :, t, :, None] * i[:, :, t, None, :]
        outs.append(divide_by_rms(torch.einsum("bhk,bhkv->bhv", silu(o)[:, :, t], state)))

    agree(net, x, merged(net, outs))
