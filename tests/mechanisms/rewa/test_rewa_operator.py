import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_operator import RewaOperator
from tests.tensors import normal


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("m", "r"), [(8, 2), (9, 2), (3, 3)])
def test_scores_are_powers_of_the_explicit_distance_over_the_temperature(
    *, m: int, r: int, power: int, shared: bool, generator: torch.Generator
) -> None:
    unit = RewaOperator(
        model_dim=8, num_heads=2, m=m, r=r, power=power, shared=shared, tau=0.7, generator=generator
    ).double()
    q, k = normal(2, 3, 4, seed=0), normal(2, 5, 4, seed=1)

    def operator(x: Tensor, weight: Tensor) -> Tensor:
        u, v = (weight.mT @ x).view(2, r, m)
        product: Tensor = u.mT @ v
        return product

    key_map = unit.witness.query if unit.witness.key is None else unit.witness.key
    for head in range(2):
        for i in range(3):
            for j in range(5):
                difference = operator(q[head, i], unit.witness.query[head]) - operator(k[head, j], key_map[head])
                expected = -(torch.linalg.matrix_norm(difference) ** power) / 0.7
                torch.testing.assert_close(unit.scores(q, k)[head, i, j], expected, rtol=1e-6, atol=1e-6)
