"""Pieces that the rotating position encodings share; an axis in front of the written ones is that of the runs."""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.layers import Rotation
from synthbench.positions.base import PositionEncoding


class LearnedRotation(Rotation):
    """A rotation by learned generators, whose coordinates can be exchanged."""

    coordinates: Tensor
    num_heads: int
    dim: int
    """Width of a head."""
    num_active: int
    """Channels that positions turn: the first ones, in the basis of the generators."""
    is_null_kept: bool = True

    # Not `Self`, which beartype cannot check under jaxtyping's import hook.
    def unmixed(self) -> "LearnedRotation":
        """Copy the rotation without P, the mixing of channels that is the same at all positions. Here it has none."""
        return deepcopy(self)

    @torch.no_grad()
    def irreducibility(self, moves: Sequence[int]) -> Float[Tensor, "*run heads"]:
        r"""Measure how far the map between two tokens is from the plain rotation by their offset, in float64.

        It is IR_spec of T8'.7, :math:`E_\Delta \max_r |A (R(r)^T R(r + \Delta) - R_{STR}(\Delta)) A|`: A projects on
        the active channels, :math:`R_{STR}` is the rotation without P. Offsets :math:`\Delta` are ``moves`` along all
        axes at once; r are the places of the tokens, where the derivation takes a ball.
        """
        whole, plain = deepcopy(self).double(), self.unmixed().double()
        whole.is_null_kept = plain.is_null_kept = True
        here, distances = whole.coordinates, []
        for move in moves:
            between = whole.matrices_at(here).mT @ whole.matrices_at(here + move)
            difference = between - plain.matrices_at(torch.full_like(here, move))
            active = difference[..., : self.num_active, : self.num_active]
            distances.append(torch.linalg.matrix_norm(active, ord=2).amax(-1))
        return torch.stack(distances).mean(0)

    def matrices_at(self, coordinates: Float[Tensor, "*run length axes"]) -> Tensor:
        """Move to some coordinates and return the matrices there: [*run, heads, length, dim, dim]."""
        self.coordinates = coordinates
        *run, length, _ = coordinates.shape
        basis = torch.eye(self.dim, dtype=coordinates.dtype, device=coordinates.device).view(self.dim, 1, 1, self.dim)
        turned: Tensor = self(basis.expand(*run, self.dim, self.num_heads, length, self.dim))
        return turned.movedim(-4, -1)


def coordinates_of(encoding: PositionEncoding) -> Float[Tensor, "length axes"]:
    """Coordinates of the tokens, in the precision of the parameters."""
    return cast("Tensor", encoding.coordinates).to(torch.get_default_dtype())


def require_planes(encoding: PositionEncoding, num_planes: int) -> None:
    """Refuse a head in which some axis of the coordinates gets no plane to turn.

    Raises:
        UsageError: If there are fewer planes than axes.
    """
    num_axes = coordinates_of(encoding).shape[-1]
    if num_planes < num_axes:
        raise UsageError(
            f"positions {encoding.name!r} turn {num_planes} planes of a head of width {encoding.head_dim}; "
            f"allowed: at least one plane, of two channels, for each axis of the coordinates, here {num_axes}"
        )


def axial_frequencies(num_planes: int, num_axes: int, base: float) -> Float[Tensor, "num_planes num_axes"]:
    """Angle per unit of each coordinate, in float64: every plane turns with one axis, base^(-i / n) for its i-th of n.

    The first planes belong to the first axis; an axis more or less of them, where they do not divide.

    Source: Su et al. (2024), section 3.2.2, for one axis: base^(-2i / d) with d = 2n.
    """
    frequencies = torch.zeros(num_planes, num_axes, dtype=torch.float64)
    for axis, planes in enumerate(torch.arange(num_planes).tensor_split(num_axes)):
        steps = torch.arange(len(planes), dtype=torch.float64) / len(planes)
        frequencies[planes, axis] = torch.exp(-math.log(base) * steps)
    return frequencies


def rows_of(
    table: Float[Tensor, "*leading rows columns"], length: int, first: int
) -> Float[Tensor, "*leading length columns"]:
    """The rows of ``length`` positions, beginning with ``first``.

    Raises:
        UsageError: If the table ends before.
    """
    end = first + length
    if end > table.shape[-2]:
        raise UsageError(f"{end} tokens; allowed: up to {table.shape[-2]}, for which the positions were made")
    return table[..., first:end, :]


def combine(
    coordinates: Float[Tensor, "*run length given"], rates: Float[Tensor, "*run heads numbers axes"]
) -> Float[Tensor, "*run heads length numbers"]:
    """Σ_k r_k β_k for every position and head. Sums, not a matrix product: TF32 would round angles of hundreds.

    Raises:
        UsageError: If the coordinates have another number of axes than the rates.
    """
    if coordinates.shape[-1] != rates.shape[-1]:
        raise UsageError(
            f"coordinates have {coordinates.shape[-1]} axes; allowed: {rates.shape[-1]}, for which the positions were "
            "made"
        )
    return (coordinates.unsqueeze(-2).unsqueeze(-4) * rates.unsqueeze(-3)).sum(-1)


def turn_planes(
    x: Float[Tensor, "*leading length dim"],
    cos: Float[Tensor, "*leading_of_angles length planes"],
    sin: Float[Tensor, "*leading_of_angles length planes"],
) -> Float[Tensor, "*leading length dim"]:
    """Turn the planes of channels (0, 1), (2, 3), ... by their angles; channels behind the last plane stay."""
    width = 2 * cos.shape[-1]
    first, second = x[..., 0:width:2], x[..., 1:width:2]
    turned = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), dim=-1)


def num_entries(dim: int) -> int:
    """Numbers that make a skew-symmetric matrix of this size."""
    return dim * (dim - 1) // 2


def skew_matrix(entries: Float[Tensor, "*leading entries"], dim: int) -> Float[Tensor, "*leading dim dim"]:
    """The skew-symmetric matrix with these entries below its diagonal, the negated above it, read along its rows.

    One entry a at (0, 1) gives a J, J = [[0, -1], [1, 0]], whose exponential turns by the angle a.
    """
    rows, columns = torch.triu_indices(dim, dim, offset=1, device=entries.device)
    upper = entries.new_zeros(*entries.shape[:-1], dim, dim)
    upper[..., rows, columns] = entries
    return upper.mT - upper


def cayley(skew: Float[Tensor, "*leading dim dim"]) -> Float[Tensor, "*leading dim dim"]:
    """(I - S)(I + S)^-1 of a skew-symmetric S: a rotation, the identity for S = 0. The two factors commute."""
    identity = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    rotation: Tensor = torch.linalg.solve(identity + skew, identity - skew)
    return rotation
