import math

import torch

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
