"""STRING, separable translationally invariant position encodings, with a learned basis."""

from typing import ClassVar, Literal

import torch
from torch import nn

from synthbench.forms.shapes import KeyHeads
from synthbench.layers import project
from synthbench.options import option
from synthbench.positions._rotations import (
    LearnedRotation,
    axial_frequencies,
    cayley,
    combine,
    num_entries,
    rows_of,
    skew_matrix,
    turn_planes,
)
from synthbench.positions.base import PositionEncoding, position


class BasisRotation(LearnedRotation):
    """A rotation by angles linear in the coordinates, in the planes of a basis; each head has its own basis."""

    def __init__(self, encoding: "String") -> None:
        """Begin with RoPE's frequencies, and in every head with the standard basis."""
        num_planes = encoding.head_dim // 2
        frequencies = axial_frequencies(encoding, num_planes, encoding.base)
        super().__init__(encoding, num_planes)
        rates = frequencies.to(self.coordinates).repeat(self.num_heads, 1, 1)
        is_learned = encoding.frequencies == "learned"
        self.frequencies = nn.Parameter(rates) if is_learned else nn.Buffer(rates, persistent=False)
        self.is_basis_learned = encoding.basis == "cayley"
        if self.is_basis_learned:
            self.skew = nn.Parameter(rates.new_zeros(self.num_heads, num_entries(self.dim)))

    def forward(self, x: KeyHeads, first: int = 0) -> KeyHeads:
        """Rotate row t, in the planes of each head's basis, according to the coordinates of token ``first + t``."""
        angles = combine(rows_of(self.coordinates, x.shape[-2], first), self.frequencies).unsqueeze(-4)
        cos, sin = angles.cos(), angles.sin()
        if not self.is_basis_learned:
            return turn_planes(x, cos, sin)
        basis = cayley(skew_matrix(self.skew, self.dim)).unsqueeze(-4)
        return project(turn_planes(project(x, basis), cos, sin), basis.mT)


@position
class String(PositionEncoding):
    r"""Rotations by learned, commuting generators, so that scores depend only on differences between positions.

    The query or key of token t is multiplied by :math:`R(r) = \exp(\sum_k r_k L_k) = U [\oplus_u R_2(\beta_u^T r)]
    U^T`, where r are the coordinates of token t and :math:`L_k` is the generator of axis k. The sum :math:`\oplus_u` is
    a block-diagonal matrix, whose block :math:`R_2` rotates plane u by the given angle. Each head learns its own
    frequencies :math:`\beta_u` and its own orthogonal basis :math:`U = (I - S)(I + S)^{-1}`, with S skew-symmetric.
    Initially, S = 0, and the rotations are those of RoPE. RoPE is the special case of one axis, U = I and fixed
    :math:`\beta`.

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
            UsageError: If a head has fewer planes (pairs of channels) than the tokens' coordinates have axes.
        """
        return BasisRotation(self)
