from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.deltanet import Deltanet
from tests.mechanisms.loops import agree, divide_by_rms, merged, unit

EYE = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(("eigenvalues", "top"), [("zero-one", 1), ("signed", 2)])
@pytest.mark.parametrize("length", [1, 75])
def test_forward_is_the_delta_rule_step_by_step(
    length: int,
    eigenvalues: Literal["zero-one", "signed"],
    top: int,
    normal: Callable[..., Tensor],
    generator: torch.Generator,
) -> None:
    net = Deltanet(model_dim=12, num_heads=2, eigenvalues=eigenvalues, generator=generator).double()
    x = normal(3, length, 12).requires_grad_()
    q, k, v = net.split_heads(net.qkv(x))
    q, k = unit(q), unit(k)
    beta = top * (x @ net.rate.weight).sigmoid()
    state, outs = torch.zeros(3, 2, 6, 6, dtype=torch.float64), []
    eye = torch.eye(6, dtype=torch.float64)
    for t in range(length):
        b, k_t = beta[:, t, :, None, None], k[:, :, t, :, None]
        state = (eye - b * k_t @ k_t.mT) @ state + b * k_t * v[:, :, t, None, :]
        outs.append(divide_by_rms(torch.einsum("bhk,bhkv->bhv", q[:, :, t], state), 1e-6))

    agree(net, x, merged(net, outs))


def test_with_beta_one_a_repeated_key_holds_its_last_value(normal: Callable[..., Tensor]) -> None:
    keys, v = EYE[[0, 1, 0, 1, 0]].view(1, 1, 5, 3), normal(1, 1, 5, 4)
    asked = EYE[[0, 0, 1, 0, 0]].view(1, 1, 5, 3)
    out = Deltanet().attend(asked, keys, v)

    torch.testing.assert_close(out, divide_by_rms(v[:, :, [0, 0, 1, 2, 4]], 1e-6))


@pytest.mark.parametrize(("eigenvalues", "low", "high"), [("zero-one", 0, 1), ("signed", -1, 1)])
def test_eigenvalues_of_a_step_reach_over_the_whole_range(
    eigenvalues: Literal["zero-one", "signed"], low: float, high: float, normal: Callable[..., Tensor]
) -> None:
    net = Deltanet(eigenvalues=eigenvalues).double()
    eigenvalue = 1 - net.beta(100 * normal(1, 200, 64))

    assert low <= eigenvalue.min() < low + 0.01
    assert high - 0.01 < eigenvalue.max() <= high
