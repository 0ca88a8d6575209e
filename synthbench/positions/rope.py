"""Rotary position embedding."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.errors import UsageError
from synthbench.forms.shapes import KeyHeads
from synthbench.layers import Rotation
from synthbench.options import option
from synthbench.positions._rotations import axial_frequencies, combine, coordinates_of, rows_of, turn_planes
from synthbench.positions.base import PositionEncoding, position


class TabledRotation(Rotation):
    """A rotation of all heads by the same fixed angles, one per position and plane (pair of channels)."""

    def __init__(self, angles: Float[Tensor, "length planes"]) -> None:
        """Store cosines and sines of the angles, in the precision of the model's parameters."""
        super().__init__()
        self.cos = nn.Buffer(angles.cos().to(torch.get_default_dtype()), persistent=False)
        self.sin = nn.Buffer(angles.sin().to(torch.get_default_dtype()), persistent=False)

    def forward(self, x: KeyHeads, first: int = 0) -> KeyHeads:
        """Rotate row t by the angles of position ``first + t``."""
        cos, sin = (rows_of(table, x.shape[-2], first).unsqueeze(-3).unsqueeze(-3) for table in (self.cos, self.sin))
        return turn_planes(x, cos, sin)


def rotary(encoding: PositionEncoding, base: float) -> TabledRotation:
    """Make the rotation of one layer, with the frequencies of RoPE for the given base.

    Raises:
        UsageError: If the head width is odd, or if a head has fewer planes (pairs of channels) than the tokens'
            coordinates have axes.
    """
    if encoding.head_dim % 2:
        raise UsageError(
            f"the width of a head is {encoding.head_dim}; allowed with positions {encoding.name!r}: even numbers"
        )
    frequencies = axial_frequencies(encoding, encoding.head_dim // 2, base)
    return TabledRotation(combine(coordinates_of(encoding).double(), frequencies.unsqueeze(0)).squeeze(0))


@position
class Rope(PositionEncoding):
    r"""Rotations of pairs of channels by angles proportional to the position, so that scores depend on offsets only.

    Channels 2i and 2i + 1 of queries and keys, read as a complex number, are multiplied by
    :math:`\exp(\mathrm{i}\, r\, \theta_i)`, where r is the position, d the head width, and
    :math:`\theta_i = \mathrm{base}^{-2i/d}`.

    Source: Su et al. (2024), eq. 14-16. The paper does not treat several axes of coordinates. Here, the pairs of
    channels are divided among the axes, with the first pairs on the first axis. With several axes, d in the formula is
    twice the number of pairs on an axis. Angles are computed in float64.
    """

    name: ClassVar = "rope"
    source: ClassVar = "su2024roformer"
    rotates: ClassVar = True

    base: float = option(10000.0, "ratio of the highest to (nearly) the lowest frequency", low=1)

    def rotation(self, generator: torch.Generator | None) -> TabledRotation:  # noqa: ARG002 - nothing is drawn
        """Make the rotation of one layer; it has no parameters.

        Raises:
            UsageError: If the head width is odd, or if a head has fewer planes (pairs of channels) than the tokens'
                coordinates have axes.
        """
        return rotary(self, self.base)
