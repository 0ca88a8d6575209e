"""The block that adds a residual connection to the mechanism, and nothing else."""

from typing import ClassVar

from torch import Tensor

from synthbench.blocks.base import Block, Mix, block, last_rows
from synthbench.forms.shapes import Tokens


@block
class AttentionOnly(Block):
    """A block that only adds the output of its mechanism ``mix`` to x: ``x + mix(x)``, without norm, MLP or dropout.

    Source: Luna, Bouhsine & Choromanski (2026), table 8, and the authors' code. Their model for synthetic tasks
    consists of such blocks.
    """

    name: ClassVar = "attention_only"
    source: ClassVar = "slay2026"

    def around(self, x: Tokens, mix: Mix) -> Tensor:
        """Add the mechanism's output to the input."""
        mixed = mix(x)
        return last_rows(x, mixed) + mixed
