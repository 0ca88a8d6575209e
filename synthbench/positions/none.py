"""The encoding that gives a mechanism no positions at all."""

from typing import ClassVar

from synthbench.positions.base import PositionEncoding, position


@position
class NoPositions(PositionEncoding):
    """Nothing is added or rotated: the mechanism sees the order of tokens through its causal mask only.

    Source: Kazemnejad et al. (2023), section 2, "NoPE".
    """

    name: ClassVar = "none"
    source: ClassVar = "kazemnejad2023nope"
