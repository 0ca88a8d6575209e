import math
from copy import deepcopy

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.layers import YatProduct
from tests.tensors import normal


@pytest.mark.parametrize(("bias", "alpha"), [(True, 2.68), (False, 0.0)])
def test_yat_units_score_alignment_over_distance(generator: torch.Generator, *, bias: bool, alpha: float) -> None:
    layer = YatProduct(5, 7, bias=bias, epsilon=0.01, generator=generator).double()
    layer.alpha.data.fill_(alpha)
    x = normal(2, 4, 5, seed=1)
    scale = (7 / math.log(8)) ** alpha

    inner = x @ layer.weight + (0 if layer.bias is None else layer.bias)
    distances = (x.unsqueeze(-1) - layer.weight).square().sum(-2)

    torch.testing.assert_close(layer(x), scale * inner**2 / (distances + 0.01), rtol=1e-12, atol=1e-12)


def test_yat_units_are_finite_and_not_negative_at_their_own_weights(generator: torch.Generator) -> None:
    layer = YatProduct(16, 200, bias=False, epsilon=1e-6, generator=generator)
    layer.weight.data.mul_(100)

    response = layer(layer.weight.mT)

    assert response.isfinite().all()
    assert (response >= 0).all()


def test_distances_of_half_precision_inputs_are_taken_in_float32(generator: torch.Generator) -> None:
    rough = YatProduct(64, 8, bias=False, epsilon=0.01, generator=generator).bfloat16()
    exact = deepcopy(rough).double()
    near = (1.01 * exact.weight.mT).bfloat16()

    response = rough(near)

    assert response.dtype == torch.bfloat16
    torch.testing.assert_close(response.double(), exact(near.double()), rtol=0.01, atol=1e-3)


def test_a_distance_that_nothing_is_added_to_is_refused() -> None:
    with pytest.raises(UsageError, match="epsilon is 0; allowed: a positive number"):
        YatProduct(3, 2, bias=True, epsilon=0.0)


def test_theorem_4_three_yat_units_make_an_inverse_multiquadric(generator: torch.Generator) -> None:
    """The second difference in the bias is 2 / (‖w - x‖² + ε), whose translates are dense in C of a compact set."""
    unit = YatProduct(4, 3, bias=True, epsilon=0.2, generator=generator).double()
    assert unit.bias is not None
    x = normal(9, 4, seed=1)
    with torch.no_grad():
        unit.alpha.zero_()
        unit.weight.copy_(unit.weight[:, :1].expand(4, 3))
        unit.bias.copy_(torch.tensor([-1.0, 0.0, 1.0]))
        below, at, above = unit(x).unbind(-1)

    distances = (x - unit.weight[:, 0].detach()).square().sum(-1)
    torch.testing.assert_close(below - 2 * at + above, 2 / (distances + 0.2))
