"""Geometric REWA with spherical geometry alone."""

from typing import ClassVar

from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.options import option


@mechanism
class RewaSpherical(RewaGeometric):
    r"""Softmax of the negative angle :math:`-\beta \arccos(x \cdot y) / \tau` between unit vectors x of q and y of k.

    This is ``rewa-geometric`` with a single geometry. By default, x and y have 15 coordinates, as many as in the three
    geometries of ``rewa-geometric`` together. The unit vectors x and y are linear maps of q and k, scaled to norm 1.
    Each head learns the weight beta and the temperature tau.

    State: every key and value so far.

    Source: Phadke (2025), definition 4.1 with the weights of the other two geometries set to 0.
    """

    name: ClassVar = "rewa-spherical"
    label: ClassVar = "Spherical REWA"
    complexity: ClassVar = "T^2 (n + d)"

    m: int = option(0, "dimensions of Euclidean witnesses, 0 for none", low=0, high=1024)
    n: int = option(15, "coordinates of spherical witnesses, 0 for none", low=0, high=1024)
    p: int = option(0, "dimensions of hyperbolic witnesses, 0 for none", low=0, high=1024)
