"""No positions at all."""

from typing import ClassVar

from synthbench.positions.base import PositionEncoding, position


@position
class NoPositions(PositionEncoding):
    """Nothing is added or rotated: order reaches the mechanism through its causal mask only.

    Source: Kazemnejad et al. (2023), section 2, "NoPE".
    """

    name: ClassVar = "none"
    source: ClassVar = "kazemnejad2023nope"
