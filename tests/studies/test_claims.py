"""The tangent kernel of the page on the papers' claims; the committed page holds what is computed from rows."""

import numpy as np
import pytest
import torch

from studies.real import tangent


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
