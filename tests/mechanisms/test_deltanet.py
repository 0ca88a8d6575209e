from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from synthbench.layers import Linear
from synthbench.mechanisms.deltanet import Deltanet
from tests.mechanisms.loops import agree, built, delta_rule, divide_by_rms, heads_of, merged, summed_taps

EYE = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 75])
def test_bare_is_the_delta_rule_step_by_step(
    length: int,
    eigenvalues: Literal["zero-one", "signed"],
    top: int,
    normal: Callable[..., Tensor],
    generator: torch.Generator,
) -> None:
    net = built(Deltanet, generator, "bare", eigenvalues=eigenvalues)
    x = normal(3, length, 12).requires_grad_()

    outs = reads(net, x, net.qkv(x), top)
    agree(net, x, merged(net, [divide_by_rms(out, 1e-6) for out in outs]))


@pytest.mark.parametrize("output_gate", [False, True])
@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 2, 75])
def test_stock_convolves_what_it_projects_and_has_a_gain_behind_the_norm(
    length: int,
    eigenvalues: Literal["zero-one", "signed"],
    top: int,
    *,
    output_gate: bool,
    normal: Callable[..., Tensor],
    generator: torch.Generator,
) -> None:
    net = built(Deltanet, generator, eigenvalues=eigenvalues, output_gate=output_gate)
    assert net.own_convolution is not None
    assert net.norm is not None
    x = normal(3, length, 12).requires_grad_()

    outs = reads(net, x, silu(summed_taps(net.own_convolution, net.qkv(x))), top)
    outs = [divide_by_rms(out / 6**0.5, 1e-6) * net.norm.weight for out in outs]
    if output_gate:
        assert isinstance(net.out_gate, Linear)
        gates = heads_of(silu(x @ net.out_gate.weight)).unbind(2)
        outs = [out * gate for out, gate in zip(outs, gates, strict=True)]
    agree(net, x, merged(net, outs))


def reads(net: Deltanet, x: Tensor, fused: Tensor, top: int) -> list[Tensor]:
    """Each head's output before the norm at every token, from q, k and v side by side."""
    beta = top * (x @ net.rate.weight).sigmoid()
    q, k, v = map(heads_of, fused.chunk(3, dim=-1))
    return delta_rule(q, k, v, beta, torch.ones(3, 2, x.shape[1], 1))


def test_with_beta_one_a_repeated_key_holds_its_last_value(normal: Callable[..., Tensor]) -> None:
    keys, v = EYE[[0, 1, 0, 1, 0]].view(1, 1, 5, 3), normal(1, 1, 5, 4)
    asked = EYE[[0, 0, 1, 0, 0]].view(1, 1, 5, 3)
    out = Deltanet(norm_gain=False).attend(asked, keys, v)

    torch.testing.assert_close(out, divide_by_rms(v[:, :, [0, 0, 1, 2, 4]], 1e-6))


@pytest.mark.parametrize(("eigenvalues", "low", "high"), [("zero-one", 0, 1), ("signed", -1, 1)])
def test_eigenvalues_of_a_step_reach_over_the_whole_range(
    eigenvalues: Literal["zero-one", "signed"], low: float, high: float, normal: Callable[..., Tensor]
) -> None:
    net = Deltanet(eigenvalues=eigenvalues).double()
    eigenvalue = 1 - net.beta(100 * normal(1, 200, 64))

    assert low <= eigenvalue.min() < low + 0.01
    assert high - 0.01 < eigenvalue.max() <= high
