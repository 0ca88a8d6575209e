from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from synthbench.mechanisms.hgrn2 import Hgrn2
from tests.mechanisms.loops import agree, divide_by_rms, heads_of, merged


def recurrence(net: Hgrn2, x: Tensor) -> list[Tensor]:
    """Reads of two heads from their states, one token at a time."""
    o, f, i = (heads_of(part) for part in net.qkv(x).chunk(3, dim=-1))
    g = net.lower + (1 - net.lower) * f.sigmoid()
    state, outs = torch.zeros(len(x), 2, 6, 6, dtype=torch.float64), []
    for t in range(x.shape[1]):
        state = g[:, :, t, :, None] * state + (1 - g)[:, :, t, :, None] * i[:, :, t, None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", silu(o)[:, :, t], state))
    return outs


@pytest.mark.parametrize("lower", [0.0, 0.3])
@pytest.mark.parametrize("length", [1, 75])
def test_bare_is_the_gated_recurrence_step_by_step(
    length: int, lower: float, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Hgrn2(model_dim=12, num_heads=2, lower=lower, norm="head", generator=generator).double()
    x = normal(3, length, 12).requires_grad_()

    agree(net, x, merged(net, [divide_by_rms(out) for out in recurrence(net, x)]))


@pytest.mark.parametrize("length", [1, 75])
def test_stock_divides_all_heads_together_by_their_rms_and_has_a_gain(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Hgrn2(model_dim=12, num_heads=2, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    net.gain.weight.data = 1 + 0.3 * normal(12, seed=1)

    outs = [divide_by_rms(out.flatten(-2) / 6**0.5) * net.gain.weight for out in recurrence(net, x)]
    agree(net, x, net.out(torch.stack(outs, dim=1)))
