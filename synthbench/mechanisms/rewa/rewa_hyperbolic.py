"""Geometric REWA with hyperbolic geometry alone."""

from typing import ClassVar

from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.options import option


@mechanism
class RewaHyperbolic(RewaGeometric):
    r"""Softmax of minus hyperbolic distances alone: :math:`-\gamma d_H(x, y) / \tau` for images x, y in the ball.

    ``rewa-geometric`` ablated to a single geometry. The images x and y of q and k lie in the Poincaré ball. The
    default width of an image, 15, equals the total width of the three geometries of ``rewa-geometric``.

    State: every key and value so far.

    Source: Phadke (2025), definition 4.1 with the other two weights set to 0.
    """

    name: ClassVar = "rewa-hyperbolic"
    label: ClassVar = "Hyperbolic REWA"
    family: ClassVar = "rewa"
    source: ClassVar = "rewa2025"
    complexity: ClassVar = "T^2 (p + d)"

    m: int = option(0, "dimensions of Euclidean witnesses, 0 for none", low=0, high=1024)
    n: int = option(0, "coordinates of spherical witnesses, 0 for none", low=0, high=1024)
    p: int = option(15, "dimensions of hyperbolic witnesses, 0 for none", low=0, high=1024)
