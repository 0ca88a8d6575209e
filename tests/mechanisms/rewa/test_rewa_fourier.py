import math

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_fourier import RewaFourier
from tests.tensors import normal


def spectrum(coefficients: Tensor, frequencies: Tensor) -> Tensor:
    """|Σ a_n exp(i ω n)|² for one token."""
    n = torch.arange(len(coefficients), dtype=torch.float64)
    angles = frequencies.unsqueeze(-1) * n
    return (angles.cos() @ coefficients) ** 2 + (angles.sin() @ coefficients) ** 2


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("num_coefficients", [1, 2, 5, 16])
def test_overlap_is_the_integral_of_the_product_of_spectra(
    *, num_coefficients: int, shared: bool, generator: torch.Generator
) -> None:
    """Equation 64 over a period, by the midpoint rule on far more points than the degree."""
    unit = RewaFourier(model_dim=8, num_heads=2, K=num_coefficients, shared=shared, generator=generator).double()
    q, k = normal(2, 3, 4, seed=0), normal(2, 3, 4, seed=1)
    overlap = unit.features(q, "query") @ unit.features(k, "key").mT
    frequencies = 2 * math.pi * (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    key_map = unit.witness.query if unit.witness.key is None else unit.witness.key

    for head in range(2):
        for i in range(3):
            for j in range(3):
                product = spectrum(q[head, i] @ unit.witness.query[head], frequencies)
                product = product * spectrum(k[head, j] @ key_map[head], frequencies)
                # The quadrature weights are stored in single precision.
                torch.testing.assert_close(overlap[head, i, j], product.mean(), rtol=1e-6, atol=1e-6)


def test_features_are_nonnegative_so_that_no_sum_crosses_zero(generator: torch.Generator) -> None:
    phi = RewaFourier(generator=generator).double().features(normal(4, 50, 16), "key")

    assert (phi >= 0).all()
