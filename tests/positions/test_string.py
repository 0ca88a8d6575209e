from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.positions.rope import Rope
from synthbench.positions.string import String
from tests.positions.rotating import GRID, matrices, scramble
from tests.tensors import normal

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
        entries = iter(rotation.skew[head].tolist())
        skew = torch.zeros(dim, dim)
        for row in range(dim):
            for column in range(row + 1, dim):
                skew[column, row] = next(entries)
                skew[row, column] = -skew[column, row]
        basis = (torch.eye(dim) - skew) @ torch.linalg.inv(torch.eye(dim) + skew)
        for t, r in enumerate(GRID):
            generator = basis @ block_form(rotation.frequencies[head] @ r, dim) @ basis.T
            torch.testing.assert_close(
                computed[head, t].detach(), torch.linalg.matrix_exp(generator).detach(), rtol=0, atol=1e-11
            )


@pytest.mark.parametrize("options", [{}, {"frequencies": "fixed", "basis": "identity"}])
@pytest.mark.parametrize("axes", [1, 2])
def test_it_begins_as_rope(options: dict[str, Any], axes: int) -> None:
    fields: dict[str, Any] = {
        "model_dim": 16,
        "num_heads": 2,
        "length": 12,
        "coordinates": GRID[:, :axes],
        "base": 77.0,
    }
    q = normal(3, 2, 12, 8)

    rotation, expected = String(**fields, **options).rotation(None), Rope(**fields).rotation(None)(q)
    torch.testing.assert_close(rotation(q), expected, rtol=0, atol=1e-12)
    assert len(list(rotation.parameters())) == (0 if options else 2)


def test_a_head_with_fewer_planes_than_axes_is_refused() -> None:
    with pytest.raises(UsageError, match=r"turn 1 planes of a head of width 3; .* here 2"):
        String(model_dim=3, num_heads=1, length=12, coordinates=GRID).rotation(None)
