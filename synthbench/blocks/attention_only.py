"""The mechanism and a residual, nothing else."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from synthbench.blocks.base import Block, block


@block
class AttentionOnly(Block):
    """``x + mix(x)``: no normalisation, no MLP, no dropout.

    Source: the published synthetic table's model (Luna, Bouhsine & Choromanski, 2026, table 8), as coded.
    """

    name: ClassVar = "attention_only"
    source: ClassVar = "slay2026"

    def forward(
        self, x: Float[Tensor, "*leading batch length model_dim"]
    ) -> Float[Tensor, "*leading batch length model_dim"]:
        """Add what was mixed."""
        mixed = self.mix(x)
        return x + mixed

    def forward_last(
        self, x: Float[Tensor, "*leading batch length model_dim"]
    ) -> Float[Tensor, "*leading batch 1 model_dim"]:
        """Add what was mixed into the last position."""
        mixed = self.mix_last(x)
        return x[..., -1:, :] + mixed
