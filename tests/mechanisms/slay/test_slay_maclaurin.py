import math

import torch
from torch import nn

from synthbench.forms.feature_maps import unit_vectors
from synthbench.mechanisms.slay.slay_maclaurin import SlayMaclaurin
from tests.tensors import normal


def test_polynomial_factor_is_products_of_two_sums_with_random_signs() -> None:
    maclaurin = SlayMaclaurin(P=5, generator=torch.Generator().manual_seed(0)).double()
    u = unit_vectors(normal(16))
    first, second = maclaurin.first * math.sqrt(5), maclaurin.second

    for signs in (first, second):
        torch.testing.assert_close(signs.abs(), torch.ones(16, 5, dtype=torch.float64), rtol=0, atol=1e-6)
    assert not torch.equal(first.sign(), second.sign())
    expected = torch.tensor(
        [float(first[:, i] @ u) * float(second[:, i] @ u) / math.sqrt(5) for i in range(5)], dtype=torch.float64
    )
    torch.testing.assert_close(maclaurin.polynomial(u.unsqueeze(0))[0], expected)


def test_variance_of_one_product_is_that_of_random_signs() -> None:
    """E[(r·q)² (r·k)²] = ‖q‖²‖k‖² + 2 (q·k)² - 2 Σ q_i² k_i² for signs; its square less x⁴ is the variance."""
    d, draws = 4, 200_000
    maclaurin = SlayMaclaurin(model_dim=d, num_heads=1, P=1).double()
    generator = torch.Generator().manual_seed(0)
    q, k = unit_vectors(normal(1, d)), unit_vectors(normal(1, d, seed=1))
    maclaurin.first, maclaurin.second = (
        nn.Buffer(2.0 * torch.randint(2, (d, draws), generator=generator).double() - 1) for _ in range(2)
    )
    kernels = (maclaurin.polynomial(q) * maclaurin.polynomial(k)).squeeze(0)
    x = float((q * k).sum())
    fourth = 1 + 2 * x**2 - 2 * float((q**2 * k**2).sum())
    variance = fourth**2 - x**4

    assert abs(float(kernels.mean()) - x**2) < 4 * math.sqrt(variance / draws)
    squares = (kernels - x**2).square()
    assert abs(float(squares.mean()) - variance) < 4 * float(squares.std()) / math.sqrt(draws)
