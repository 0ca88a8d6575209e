"""The mechanism and a residual, nothing else."""

from typing import ClassVar

from torch import Tensor

from synthbench.blocks.base import Block, Mix, block, last_rows
from synthbench.forms.shapes import Tokens


@block
class AttentionOnly(Block):
    """``x + mix(x)``: no normalisation, no MLP, no dropout.

    Source: the published synthetic table's model (Luna, Bouhsine & Choromanski, 2026, table 8), as coded.
    """

    name: ClassVar = "attention_only"
    source: ClassVar = "slay2026"

    def around(self, x: Tokens, mix: Mix) -> Tensor:
        """Add what was mixed."""
        mixed = mix(x)
        return last_rows(x, mixed) + mixed
