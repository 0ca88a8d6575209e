"""Rotations as matrices, and numbers for them."""

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from synthbench.layers import Rotation
from synthbench.positions import POSITIONS
from synthbench.positions.espr import MixedRotation

GRID = torch.cartesian_prod(torch.arange(3), torch.arange(4)).double()
"""Coordinates of twelve tokens on two axes."""


def rotation_of(term: str, coordinates: Tensor, seed: int = 0) -> Any:
    """The rotation of two heads of eight channels."""
    encoding, options = POSITIONS.configured(term)
    shape = {"model_dim": 16, "num_heads": 2, "length": len(coordinates), "coordinates": coordinates}
    fields: dict[str, Any] = {**shape, **options}
    return encoding(**fields).rotation(torch.Generator().manual_seed(seed))


def matrices(rotation: Rotation, num_heads: int, length: int, dim: int) -> Tensor:
    """Read a rotation off as matrices [heads, length, dim, dim]: column b is what the b-th basis vector turns into."""
    basis = torch.eye(dim, dtype=torch.float64).view(dim, 1, 1, dim).expand(dim, num_heads, length, dim)
    turned: Tensor = rotation(basis)
    return turned.permute(1, 2, 3, 0)


def skew_of(entries: Tensor, dim: int) -> Tensor:
    """A skew-symmetric matrix, one entry below the diagonal after the other."""
    skew, rest = torch.zeros(dim, dim), iter(entries.tolist())
    for row, column in combinations(range(dim), 2):
        skew[column, row] = next(rest)
    return skew - skew.T


def cayley_of(entries: Tensor, dim: int) -> Any:
    """(I - S)(I + S)⁻¹."""
    skew = skew_of(entries, dim)
    return (torch.eye(dim) - skew) @ torch.linalg.inv(torch.eye(dim) + skew)


def planes_of(angles: Tensor, dim: int) -> Tensor:
    """⊕_u θ_u J, with zeros behind the last plane."""
    generator = torch.zeros(dim, dim)
    for u, angle in enumerate(angles.tolist()):
        generator[2 * u + 1, 2 * u] = angle
        generator[2 * u, 2 * u + 1] = -angle
    return generator


def turning_of(rotation: MixedRotation, head: int, r: Tensor) -> Any:
    """R(r) from the definitions."""
    rates = rotation.rates[head] @ r
    if rotation.is_commuting:
        generator = planes_of(rates, rotation.dim)
    else:
        num_null = rotation.dim - rotation.num_active
        generator = torch.block_diag(skew_of(rates, rotation.num_active), torch.zeros(num_null, num_null))
    return torch.linalg.matrix_exp(generator)


def written_out(rotation: MixedRotation, head: int, r: Tensor) -> Any:
    """R(r) P or P R(r) Pᵀ from the definitions."""
    turning, mixing = turning_of(rotation, head, r), cayley_of(rotation.skew[head], rotation.dim)
    return turning @ mixing if rotation.order == "post" else mixing @ turning @ mixing.T
