import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_fourier import RewaFourier


def spectrum(coefficients: Tensor, frequencies: Tensor) -> Tensor:
    """|Σ a_n exp(i ω n)|² for one token."""
    n = torch.arange(len(coefficients), dtype=torch.float64)
    angles = frequencies.unsqueeze(-1) * n
    return (angles.cos() @ coefficients) ** 2 + (angles.sin() @ coefficients) ** 2


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("num_coefficients", [1, 2, 5, 16])
def test_overlap_is_the_integral_of_the_product_of_spectra(
    *, num_coefficients: int, shared: bool, normal: Callable[..., Tensor], generator: torch.Generator
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


def test_overlap_is_the_inner_product_of_autocorrelations(
    normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    """Parseval: the coefficients of a power spectrum are the autocorrelation of the coefficients."""
    unit = RewaFourier(model_dim=8, num_heads=1, K=6, generator=generator).double()
    x = normal(1, 2, 8)
    a = unit.witness(x, "query")[0]

    def autocorrelation(coefficients: Tensor) -> Tensor:
        return torch.stack([(coefficients[lag:] * coefficients[: 6 - lag]).sum() for lag in range(6)])

    first, second = autocorrelation(a[0]), autocorrelation(a[1])
    expected = first[0] * second[0] + 2 * (first[1:] * second[1:]).sum()
    phi = unit.features(x, "query")[0]
    torch.testing.assert_close(phi[0] @ phi[1], expected, rtol=1e-6, atol=1e-6)


def test_features_are_nonnegative_so_that_no_sum_crosses_zero(
    normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    phi = RewaFourier(generator=generator).double().features(normal(4, 50, 16), "key")

    assert (phi >= 0).all()


def test_attention_is_the_overlap_over_its_sum(
    mix: Callable[..., Tensor], normal: Callable[..., Tensor], generator: torch.Generator
) -> None:
    unit = RewaFourier(K=5, generator=generator).double()
    q, k, v = (normal(2, 4, 20, 16, seed=seed) for seed in range(3))

    overlap = unit.features(q, "query") @ unit.features(k, "key").mT
    torch.testing.assert_close(unit.attend(q, k, v), mix(overlap, v))


def test_a_shift_of_the_coefficients_leaves_the_spectrum(generator: torch.Generator) -> None:
    unit = RewaFourier(model_dim=4, num_heads=1, K=4, generator=generator)
    unit.witness.query.data = torch.eye(4).unsqueeze(0)
    x = torch.tensor([[[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0]]])

    first, second = unit.features(x, "query")[0]
    torch.testing.assert_close(first, second)


def test_the_state_is_one_number_a_coefficient_and_column() -> None:
    assert RewaFourier(K=10).state_elements(1000) == 4 * 10 * 17
