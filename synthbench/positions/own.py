"""The position encoding that the authors of each layer's mechanism use."""

from typing import ClassVar

import torch

from synthbench.positions.base import PositionEncoding, position
from synthbench.positions.rope import TabledRotation, rotary


@position
class Own(PositionEncoding):
    """RoPE for mechanisms whose authors use RoPE, and no position encoding for other mechanisms.

    Stored results name the encoding that is used, ``rope`` or ``none``, in place of ``own``. The name ``own`` is stored
    only for a hybrid (a model whose layers have different mechanisms) with both encodings.

    Source: each mechanism's paper; angles as in ``rope`` at its default base.
    """

    name: ClassVar = "own"
    source: ClassVar = "su2024roformer"
    rotates: ClassVar = True

    def rotation(self, generator: torch.Generator | None) -> TabledRotation:  # noqa: ARG002 - nothing is drawn
        """Create the rotation of one layer by RoPE, for a mechanism whose authors use RoPE.

        Raises:
            UsageError: If the head width is odd, or if a head has fewer planes (pairs of channels) than the tokens'
                coordinates have axes.
        """
        return rotary(self, 10000.0)
