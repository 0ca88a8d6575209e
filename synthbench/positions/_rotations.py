"""Parts that rotary position encodings share.

If several runs train together, tensors have one more leading axis, the run axis.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.errors import UsageError
from synthbench.layers import Rotation
from synthbench.positions.base import PositionEncoding


class LearnedRotation(Rotation):
    """A rotation by position with learned parameters.

    The attribute ``coordinates`` holds the coordinates of the tokens, and can be set to other coordinates. The
    attribute ``dim`` is the width of a head, and ``num_active`` the number of channels that rotate with the position.
    In the basis of the rotation, these channels come first.
    """

    coordinates: Tensor
    is_null_kept: bool = True
    """True if the channels that do not rotate are kept; False if they are zeroed."""

    def __init__(self, encoding: PositionEncoding, num_planes: int) -> None:
        """Store the coordinates and widths of a position encoding that rotates ``num_planes`` pairs of channels."""
        super().__init__()
        self.num_heads, self.dim, self.num_active = encoding.num_heads, encoding.head_dim, 2 * num_planes
        self.coordinates = nn.Buffer(coordinates_of(encoding), persistent=False)

    # Not `Self`, which beartype cannot check under jaxtyping's import hook.
    def unmixed(self) -> "LearnedRotation":
        """Copy the rotation without P, the learned matrix that mixes channels.

        A rotation without such a matrix returns an equal copy of itself.
        """
        return deepcopy(self)

    @torch.no_grad()
    def irreducibility(self, moves: Sequence[int]) -> Float[Tensor, "*run heads"]:
        r"""Measure, per head, how much the map between two tokens differs from a plain rotation by the tokens' offset.

        The measure is IR_spec of statement T8'.7 in the ESPR derivation, a manuscript that is the source of the
        position encoding ``espr``. It is :math:`E_\Delta \max_r |A (R(r)^T R(r + \Delta) - R_{STR}(\Delta)) A|`, where
        the bars stand for the spectral norm. R(r) is this rotation at the coordinates r, and :math:`R_{STR}` is the
        rotation without P: see :meth:`unmixed`. The matrix A projects on the first ``num_active`` channels, those that
        rotate. The mean :math:`E_\Delta` is over the offsets Δ in ``moves``; an offset is added to every coordinate.
        Here, the maximum is over the coordinates of the tokens; in the derivation, it is over a ball. The computation
        is in float64.
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
        """Store the given coordinates, and return the matrices of the rotation at these coordinates.

        The result has the shape [*run, heads, length, dim, dim].
        """
        self.coordinates = coordinates
        *run, length, _ = coordinates.shape
        basis = torch.eye(self.dim, dtype=coordinates.dtype, device=coordinates.device).view(self.dim, 1, 1, self.dim)
        turned: Tensor = self(basis.expand(*run, self.dim, self.num_heads, length, self.dim))
        return turned.movedim(-4, -1)


def coordinates_of(encoding: PositionEncoding) -> Float[Tensor, "length axes"]:
    """Return the coordinates of the tokens, in the precision of the parameters."""
    return cast("Tensor", encoding.coordinates).to(torch.get_default_dtype())


def axial_frequencies(encoding: PositionEncoding, num_planes: int, base: float) -> Float[Tensor, "num_planes num_axes"]:
    """Compute the frequencies (the angle of each plane per unit of each coordinate) in float64.

    A plane is a pair of channels. The angle of a plane depends on a single axis of the coordinates. The i-th of the n
    planes of an axis, counted from 0, has the frequency base^(-i / n). The first planes belong to the first axis. If
    the number of planes is not a multiple of the number of axes, the first axes get one plane more than the others.

    Source: Su et al. (2024), section 3.2.2, for one axis: base^(-2i / d) with d = 2n.

    Raises:
        UsageError: If there are fewer planes than axes.
    """
    num_axes = coordinates_of(encoding).shape[-1]
    if num_planes < num_axes:
        raise UsageError(
            f"positions {encoding.name!r} turn {num_planes} planes of a head of width {encoding.head_dim}; "
            f"allowed: at least one plane, of two channels, for each axis of the coordinates, here {num_axes}"
        )
    frequencies = torch.zeros(num_planes, num_axes, dtype=torch.float64)
    for axis, planes in enumerate(torch.arange(num_planes).tensor_split(num_axes)):
        steps = torch.arange(len(planes), dtype=torch.float64) / len(planes)
        frequencies[planes, axis] = torch.exp(-math.log(base) * steps)
    return frequencies


def rows_of(
    table: Float[Tensor, "*leading rows columns"], length: int, first: int
) -> Float[Tensor, "*leading length columns"]:
    """Return ``length`` rows of a table with one row per position, beginning with row ``first``.

    Raises:
        UsageError: If the table has too few rows.
    """
    end = first + length
    if end > table.shape[-2]:
        raise UsageError(f"{end} tokens; allowed: up to {table.shape[-2]}, for which the positions were made")
    return table[..., first:end, :]


def combine(
    coordinates: Float[Tensor, "*run length given"], rates: Float[Tensor, "*run heads numbers axes"]
) -> Float[Tensor, "*run heads length numbers"]:
    """Sum the products of coordinates and rates over the coordinate axes, for every position and head.

    No matrix product is used, since TF32 would round large angles too coarsely.

    Raises:
        UsageError: If coordinates and rates have different numbers of axes.
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
    """Rotate the channel pairs (0, 1), (2, 3), ... by their angles; channels after the last pair stay unchanged."""
    width = 2 * cos.shape[-1]
    first, second = x[..., 0:width:2], x[..., 1:width:2]
    turned = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), dim=-1)


def num_entries(dim: int) -> int:
    """Count the independent entries of a skew-symmetric matrix of size ``dim``."""
    return dim * (dim - 1) // 2


def skew_matrix(entries: Float[Tensor, "*leading entries"], dim: int) -> Float[Tensor, "*leading dim dim"]:
    """Build a skew-symmetric matrix whose entries above the diagonal, row by row, are the negated ``entries``.

    For example, the single entry θ gives [[0, -θ], [θ, 0]], whose exponential rotates a plane by the angle θ.
    """
    rows, columns = torch.triu_indices(dim, dim, offset=1, device=entries.device)
    upper = entries.new_zeros(*entries.shape[:-1], dim, dim)
    upper[..., rows, columns] = entries
    return upper.mT - upper


def cayley(skew: Float[Tensor, "*leading dim dim"]) -> Float[Tensor, "*leading dim dim"]:
    """Compute the rotation (I - S)(I + S)^-1 for a skew-symmetric S; the two factors commute."""
    identity = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    rotation: Tensor = torch.linalg.solve(identity + skew, identity - skew)
    return rotation
