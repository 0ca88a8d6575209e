"""The position encoding that each layer's mechanism has from its authors."""

from typing import ClassVar

import torch

from synthbench.positions.base import PositionEncoding, position
from synthbench.positions.rope import TabledRotation, rotary


@position
class Own(PositionEncoding):
    """RoPE in the layers whose mechanism has it from its authors, nothing in the others.

    The rows of a single mechanism are named as with ``rope`` or ``none``, whichever it has. This name stays for hybrids
    whose layers differ.

    Source: each mechanism's paper; angles as in ``rope`` at its default base.
    """

    name: ClassVar = "own"
    source: ClassVar = "su2024roformer"
    rotates: ClassVar = True

    def rotation(self, generator: torch.Generator | None) -> TabledRotation:  # noqa: ARG002 - nothing is drawn
        """Make the rotation of one layer, for a mechanism that has one.

        Raises:
            UsageError: If the width of a head is odd, or it has fewer planes than the coordinates have axes.
        """
        return rotary(self, 10000.0)
