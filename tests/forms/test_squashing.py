import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from synthbench.forms.squashing import softermax

POWERS = [0.25, 0.5, 1.0, 2.0, 3.5]
SCORES = st.lists(st.just(0.0) | st.floats(1e-100, 1e6), min_size=1, max_size=6)


def column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(SCORES, st.sampled_from(POWERS), st.sampled_from([1e-6, 0.1, 1.0]))
def test_softermax_is_a_power_over_the_sum_of_powers(scores: list[float], power: float, epsilon: float) -> None:
    total = epsilon + math.fsum(score**power for score in scores)

    expected = column([score**power / total for score in scores])

    torch.testing.assert_close(softermax(column(scores), power, epsilon), expected, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("power", [0.25, 1.0, 8.0, 16.0])
def test_softermax_and_its_gradient_are_finite_in_float32(power: float, scale: float) -> None:
    scores = (scale * torch.tensor([0.0, 0.0, 1.0, 3.0])).requires_grad_()

    weights = softermax(scores, power, 1e-6)
    (gradient,) = torch.autograd.grad(weights.sin().sum(), scores)

    assert weights.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("power", POWERS)
def test_gradients_are_those_of_finite_differences(power: float) -> None:
    x = torch.linspace(0.2, 3, 6, dtype=torch.float64).view(2, 3).requires_grad_()

    assert torch.autograd.gradcheck(lambda x: softermax(x, power, 1e-6), x)
    assert torch.autograd.gradcheck(lambda x: softermax(x, power, 0.5), x)
