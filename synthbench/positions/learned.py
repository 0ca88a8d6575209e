"""Learned absolute positions."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthbench.positions.base import PositionEncoding, position


@position
class Learned(PositionEncoding):
    """One learned N(0, 1) vector a position, added to the token's embedding.

    The table has the rows that are used and no more: the published model held 4 096 of them, 88 % of its parameters.

    Source: Vaswani et al. (2017), section 3.5, the learned variant.
    """

    name: ClassVar = "learned"
    source: ClassVar = "vaswani2017attention"

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw ``length`` vectors."""
        self.weight = nn.Parameter(torch.empty(self.length, self.model_dim).normal_(generator=generator))

    def embed(
        self, x: Float[Tensor, "*leading batch length model_dim"], first: int = 0
    ) -> Float[Tensor, "*leading batch length model_dim"]:
        """Add row ``first + t`` to token t."""
        return x + self.weight[..., first : first + x.shape[-2], :].unsqueeze(-3)
