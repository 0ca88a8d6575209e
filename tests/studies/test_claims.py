"""What the page on the papers' claims computes without rows; the committed page holds the rest."""

import numpy as np
import pytest
import torch

from studies.real import claims, tangent


def test_the_angle_is_not_near_softmax_and_nearer_where_vectors_are_few() -> None:
    assert claims.distance_from_softmax().low > 0.1
    assert claims.distance_from_softmax(num=1).high == 0


@pytest.mark.parametrize("epsilon", [0.01, 1.0])
def test_the_tangent_kernel_is_the_product_of_all_derivatives(epsilon: float) -> None:
    rng = np.random.default_rng(1)
    inputs, weights = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    point = torch.tensor(weights, requires_grad=True)
    derivatives = []
    for each in torch.tensor(inputs):
        values = (point @ each) ** 2 / ((point - each).square().sum(-1) + epsilon)
        (gradient,) = torch.autograd.grad(values.sum(), point)
        derivatives.append(torch.cat([values.detach(), gradient.flatten()]).numpy())
    stacked = np.stack(derivatives)

    np.testing.assert_allclose(tangent.yat_kernel(inputs, weights, epsilon), stacked @ stacked.T / 5, rtol=1e-10)


def test_a_spectrum_says_how_fast_eigenvalues_fall() -> None:
    values = np.arange(1, 257) ** -2.0

    found = tangent.spectrum(np.diag(values))

    assert found.exponent == pytest.approx(-2)
    assert found.num_of_part == 1 + int((values.cumsum() < 0.9 * values.sum()).sum())
    assert tangent.spectrum(np.eye(10)).num_of_part == 9
