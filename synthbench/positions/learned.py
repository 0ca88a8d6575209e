"""Learned absolute positions."""

from typing import ClassVar

import torch
from torch import nn

from synthbench.forms.shapes import Tokens
from synthbench.positions._rotations import rows_of
from synthbench.positions.base import PositionEncoding, position


@position
class Learned(PositionEncoding):
    """One learned vector per position, added to the token's embedding; its initial values are drawn from N(0, 1).

    The table of vectors has ``length`` rows. In the published model that the suite ``paper`` reproduces, the table had
    4 096 rows, 88 % of the model's parameters.

    Source: Vaswani et al. (2017), section 3.5, the learned variant.
    """

    name: ClassVar = "learned"
    source: ClassVar = "vaswani2017attention"
    extends: ClassVar = False

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw a table of ``length`` vectors, one per position."""
        self.weight = nn.Parameter(torch.empty(self.length, self.model_dim).normal_(generator=generator))

    def embed(self, x: Tokens, first: int = 0) -> Tokens:
        """Add row ``first + t`` of the table of positions to the embedding of token t."""
        return x + rows_of(self.weight, x.shape[-2], first).unsqueeze(-3)
