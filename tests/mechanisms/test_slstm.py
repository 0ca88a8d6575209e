import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, silu

from synthbench.mechanisms.slstm import HeadwiseLinear, Slstm
from tests.mechanisms.loops import check_loop, summed_taps


def step_by_step(net: Slstm, x: Tensor) -> Tensor:
    """The layer token by token, its cell with c and n, without a stabiliser."""
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
    normal = torch.stack(outs, dim=1)
    normal = normal if net.gain is None else normal * net.gain.flatten()
    projected: Tensor = normal if net.out is None else net.out(normal)
    return projected


@pytest.mark.parametrize("condition", ["bare", "stock"])
@pytest.mark.parametrize("length", [1, 9])
def test_forward_is_the_layer_without_its_stabiliser_and_so_are_gradients(length: int, condition: str) -> None:
    check_loop(Slstm, step_by_step, length, condition, width=6, scale=1.0)


def test_gates_of_a_thousand_do_not_overflow(generator: torch.Generator) -> None:
    net = Slstm(model_dim=6, num_heads=2, generator=generator)
    x = 1e3 * torch.randn(2, 40, 6, generator=generator)

    assert net(x).isfinite().all()
