"""Rotations as matrices, in float64, and numbers for them."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from synthbench.layers import Rotation


@pytest.fixture
def double() -> Iterator[None]:
    """Create tables and parameters in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def matrices() -> Callable[..., Tensor]:
    """Read a rotation off as matrices [heads, length, dim, dim]: column b is what the b-th basis vector turns into."""

    def matrices(rotation: Rotation, num_heads: int, length: int, dim: int) -> Tensor:
        basis = torch.eye(dim, dtype=torch.float64).view(dim, 1, 1, dim).expand(dim, num_heads, length, dim)
        turned: Tensor = rotation(basis)
        return turned.permute(1, 2, 3, 0)

    return matrices


@pytest.fixture
def scramble() -> Callable[..., None]:
    """Move every parameter away from where it begins."""

    def scramble(rotation: Rotation, size: float = 0.3, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in rotation.parameters():
                parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))

    return scramble


@pytest.fixture
def grid() -> Tensor:
    """Coordinates of twelve tokens on two axes."""
    return torch.cartesian_prod(torch.arange(3), torch.arange(4)).double()
