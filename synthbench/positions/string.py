"""STRING, separable translationally invariant position encodings, with a learned basis."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.forms.shapes import KeyHeads
from synthbench.layers import project
from synthbench.options import option
from synthbench.positions._rotations import (
    LearnedRotation,
    axial_frequencies,
    cayley,
    combine,
    coordinates_of,
    num_entries,
    require_planes,
    rows_of,
    skew_matrix,
    turn_planes,
)
from synthbench.positions.base import PositionEncoding, position


class BasisRotation(LearnedRotation):
    """A rotation of the planes of a basis by angles linear in the coordinates; each head has its own basis."""

    def __init__(
        self,
        coordinates: Float[Tensor, "length axes"],
        frequencies: Float[Tensor, "heads planes axes"],
        *,
        dim: int,
        is_learned: bool,
        is_basis_learned: bool,
    ) -> None:
        """Store the initial frequencies; in every head, the initial basis is the standard basis."""
        super().__init__()
        self.num_heads, self.dim, self.num_active = len(frequencies), dim, 2 * frequencies.shape[1]
        self.is_basis_learned = is_basis_learned
        self.coordinates = nn.Buffer(coordinates, persistent=False)
        self.frequencies = nn.Parameter(frequencies) if is_learned else nn.Buffer(frequencies, persistent=False)
        if is_basis_learned:
            self.skew = nn.Parameter(frequencies.new_zeros(len(frequencies), num_entries(dim)))

    def forward(self, x: KeyHeads, first: int = 0) -> KeyHeads:
        """Rotate row t in the planes of each head's basis by the coordinates of token ``first + t``."""
        angles = combine(rows_of(self.coordinates, x.shape[-2], first), self.frequencies).unsqueeze(-4)
        cos, sin = angles.cos(), angles.sin()
        if not self.is_basis_learned:
            return turn_planes(x, cos, sin)
        basis = cayley(skew_matrix(self.skew, self.dim)).unsqueeze(-4)
        return project(turn_planes(project(x, basis), cos, sin), basis.mT)


@position
class String(PositionEncoding):
    r"""Rotations by learned, commuting generators, so that scores depend on positions only by their difference.

    Row t is rotated by :math:`R(r) = \exp(\sum_k r_k L_k) = U [\oplus_u R_2(\beta_u^T r)] U^T`, where r are the
    coordinates of token t and :math:`L_k` is the generator of axis k. The sum :math:`\oplus_u` is a block-diagonal
    matrix, whose block :math:`R_2` rotates plane u by the given angle. Each head learns its own frequencies
    :math:`\beta_u` and its own orthogonal basis :math:`U = (I - S)(I + S)^{-1}`, with S skew-symmetric. Training begins
    at RoPE, with S = 0. RoPE is the special case of one axis, U = I and fixed :math:`\beta`.

    Source: Schenck et al. (2025), Cayley-STRING; the block form is in statements T2.3 to T2.7 of the ESPR derivation (a
    manuscript). Both sources allow any number of coordinate axes. In a head of odd width, one channel of the basis does
    not rotate: the null part of T2.3.
    """

    name: ClassVar = "string"
    source: ClassVar = "schenck2025string"
    rotates: ClassVar = True

    base: float = option(10000.0, "base of RoPE's frequencies, at which the learned ones begin", low=1)
    basis: Literal["cayley", "identity"] = option(
        "cayley", "whether the basis of a head is learned or the standard one"
    )
    frequencies: Literal["learned", "fixed"] = option("learned", "whether the frequencies of a head are trained")

    def rotation(self, generator: torch.Generator | None) -> BasisRotation:  # noqa: ARG002 - nothing is drawn
        """Make the rotation of one layer, which initially equals RoPE.

        Raises:
            UsageError: If a head has fewer planes than the coordinates have axes.
        """
        num_planes = self.head_dim // 2
        require_planes(self, num_planes)
        coordinates = coordinates_of(self)
        frequencies = axial_frequencies(num_planes, coordinates.shape[-1], self.base).to(coordinates)
        return BasisRotation(
            coordinates,
            frequencies.repeat(self.num_heads, 1, 1),
            dim=self.head_dim,
            is_learned=self.frequencies == "learned",
            is_basis_learned=self.basis == "cayley",
        )
