from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.deltanet import Deltanet
from tests.mechanisms.loops import check_loop, convolved_heads, delta_rule, divide_by_rms, heads_of, normed_and_gated
from tests.tensors import normal

EYE = torch.eye(3, dtype=torch.float64)


def step_by_step(net: Deltanet, x: Tensor) -> Tensor:
    """The delta rule token by token; without a convolution there is no SiLU either."""
    q, k, v = map(heads_of, net.qkv(x).chunk(3, dim=-1)) if net.own_convolution is None else convolved_heads(net, x)
    beta = (2 if net.eigenvalues == "signed" else 1) * (x @ net.rate.weight).sigmoid().unsqueeze(-1)
    return normed_and_gated(net, x, delta_rule(q, [k], [v], beta, torch.ones(3, 2, x.shape[1], 1)), 1e-6)


@pytest.mark.parametrize("options", [{"condition": "bare"}, {"output_gate": False}, {"output_gate": True}])
@pytest.mark.parametrize("eigenvalues", ["zero-one", "signed"])
@pytest.mark.parametrize("length", [1, 2, 40])
def test_it_is_the_delta_rule_between_convolution_norm_and_gate(
    length: int, eigenvalues: str, options: dict[str, Any]
) -> None:
    check_loop(Deltanet, step_by_step, length, eigenvalues=eigenvalues, **options)


def test_with_beta_one_a_repeated_key_holds_its_last_value() -> None:
    keys, v = EYE[[0, 1, 0, 1, 0]].view(1, 1, 5, 3), normal(1, 1, 5, 4)
    asked = EYE[[0, 0, 1, 0, 0]].view(1, 1, 5, 3)
    out = Deltanet(norm_gain=False).attend(asked, keys, v)

    torch.testing.assert_close(out, divide_by_rms(v[:, :, [0, 0, 1, 2, 4]], 1e-6))
