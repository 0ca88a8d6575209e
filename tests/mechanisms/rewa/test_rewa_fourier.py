import math

import pytest
import torch

from synthbench.mechanisms.rewa.rewa_fourier import RewaFourier
from tests.mechanisms.loops import built, mapped
from tests.tensors import normal


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("num_coefficients", [1, 2, 5, 16])
def test_overlap_is_the_integral_of_the_product_of_spectra(*, num_coefficients: int, shared: bool) -> None:
    """Equation 64 over a period, by the midpoint rule on far more points than the degree."""
    unit = built(RewaFourier, K=num_coefficients, shared=shared)
    q, k = normal(2, 3, 4, seed=0), normal(2, 3, 4, seed=1)
    frequencies = 2 * math.pi * (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    waves = torch.polar(torch.ones(()).double(), torch.outer(torch.arange(num_coefficients), frequencies))
    of_query, of_key = ((x + 0j) @ waves for x in mapped(unit.witness, q, k))

    overlap = unit.features(q, "query") @ unit.features(k, "key").mT
    expected = of_query.abs().square() @ of_key.abs().square().mT / 1000
    # The quadrature weights are stored in single precision.
    torch.testing.assert_close(overlap, expected, rtol=1e-6, atol=1e-6)


def test_features_are_nonnegative_so_that_no_sum_crosses_zero() -> None:
    phi = built(RewaFourier).features(normal(2, 50, 4), "key")

    assert (phi >= 0).all()
