import pytest
import torch
from torch import Tensor

from synthbench.positions.string import String
from tests.positions.rotating import GRID, cayley_of, matrices, scramble

pytestmark = pytest.mark.usefixtures("double")


def block_form(angles: Tensor, dim: int) -> Tensor:
    """⊕_u θ_u J, with zeros behind the last plane."""
    generator = torch.zeros(dim, dim)
    for u, angle in enumerate(angles.tolist()):
        generator[2 * u + 1, 2 * u] = angle
        generator[2 * u, 2 * u + 1] = -angle
    return generator


@pytest.mark.parametrize("dim", [6, 7])
def test_it_is_the_exponential_of_generators_in_a_learned_basis(dim: int) -> None:
    rotation = String(model_dim=2 * dim, num_heads=2, length=12, coordinates=GRID).rotation(None)
    scramble(rotation)
    computed = matrices(rotation, 2, 12, dim)

    for head in range(2):
        basis = cayley_of(rotation.skew[head], dim)
        for t, r in enumerate(GRID):
            generator = basis @ block_form(rotation.frequencies[head] @ r, dim) @ basis.T
            torch.testing.assert_close(
                computed[head, t].detach(), torch.linalg.matrix_exp(generator).detach(), rtol=0, atol=1e-11
            )
