import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_operator import RewaOperator
from tests.mechanisms.loops import built, mapped
from tests.tensors import normal


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("m", "r"), [(8, 2), (9, 2), (3, 3)])
def test_scores_are_powers_of_the_explicit_distance_over_the_temperature(
    *, m: int, r: int, power: int, shared: bool
) -> None:
    unit = built(RewaOperator, m=m, r=r, power=power, shared=shared, tau=0.7)
    q, k = normal(2, 3, 4, seed=0), normal(2, 5, 4, seed=1)

    def operators(witness: Tensor) -> Tensor:
        u, v = witness.unflatten(-1, (2, r, m)).unbind(-3)
        return torch.einsum("htra,htrb->htab", u, v)

    of_query, of_key = map(operators, mapped(unit.witness, q, k))
    differences = of_query.unsqueeze(2) - of_key.unsqueeze(1)
    expected = -(torch.linalg.matrix_norm(differences) ** power) / 0.7
    torch.testing.assert_close(unit.scores(q, k), expected, rtol=1e-6, atol=1e-6)
