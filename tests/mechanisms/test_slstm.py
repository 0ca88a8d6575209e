from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from synthbench.errors import UsageError
from synthbench.mechanisms.slstm import Slstm
from tests.mechanisms.loops import agree


def step_by_step(net: Slstm, x: Tensor) -> Tensor:
    """The cell with c and n, without a stabiliser."""
    fused = (net.gates(x) + net.gates_bias).unflatten(-1, (2, -1))
    h, c, n = (torch.zeros(len(x), 2, 3, dtype=x.dtype) for _ in range(3))
    outs = []
    for t in range(x.shape[1]):
        z, i, f, o = (fused[:, t] + torch.einsum("bhs,hsg->bhg", h, net.recurrent)).chunk(4, dim=-1)
        c, n = f.sigmoid() * c + i.exp() * z.tanh(), f.sigmoid() * n + i.exp()
        h = o.sigmoid() * c / n
        outs.append(layer_norm(h, (3,)).flatten(-2))
    projected: Tensor = net.out(torch.stack(outs, dim=1))
    return projected


@pytest.mark.parametrize("length", [1, 30])
def test_forward_is_the_cell_without_its_stabiliser_and_so_are_gradients(
    length: int, normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    net = Slstm(model_dim=6, num_heads=2, generator=generator).double()
    with torch.no_grad():
        net.recurrent.copy_(normal(2, 3, 12, seed=1))
    x = normal(3, length, 6).requires_grad_()

    agree(net, x, step_by_step(net, x))


def test_gates_of_a_thousand_do_not_overflow(generator: torch.Generator) -> None:
    net = Slstm(model_dim=6, num_heads=2, generator=generator)
    x = 1e3 * torch.randn(2, 40, 6, generator=generator)

    assert net(x).isfinite().all()


def test_biases_begin_at_given_values_and_heads_divide_the_width(generator: torch.Generator) -> None:
    bias = Slstm(model_dim=8, num_heads=2, generator=generator).gates_bias.view(2, 4, 4)

    assert bias[0, 2].tolist() == [5, 1, -3, -7]
    assert (bias[:, [0, 1, 3]] == 0).all()
    with pytest.raises(UsageError, match="num_heads is 3; allowed: a divisor of the width 8"):
        Slstm(model_dim=8, num_heads=3)
