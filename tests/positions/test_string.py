import pytest
import torch

from synthbench.positions.string import String
from tests.positions.rotating import GRID, cayley_of, matrices, planes_of, scramble

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("dim", [6, 7])
def test_it_is_the_exponential_of_generators_in_a_learned_basis(dim: int) -> None:
    rotation = String(model_dim=2 * dim, num_heads=2, length=12, coordinates=GRID).rotation(None)
    scramble(rotation)
    computed = matrices(rotation, 2, 12, dim)

    for head in range(2):
        basis = cayley_of(rotation.skew[head], dim)
        for t, r in enumerate(GRID):
            generator = basis @ planes_of(rotation.frequencies[head] @ r, dim) @ basis.T
            torch.testing.assert_close(
                computed[head, t].detach(), torch.linalg.matrix_exp(generator).detach(), rtol=0, atol=1e-11
            )
