"""Geometric REWA with hyperbolic geometry alone."""

from typing import ClassVar

from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.options import option


@mechanism
class RewaHyperbolic(RewaGeometric):
    r"""Softmax of the negative hyperbolic distance :math:`-\gamma d_H(x, y) / \tau` between points x of q and y of k.

    This is ``rewa-geometric`` with a single geometry. By default, x and y have 15 coordinates, as many as in the three
    geometries of ``rewa-geometric`` together. The points x and y are q and k, mapped linearly and then into the
    Poincaré ball. Each head learns the weight gamma and the temperature tau.

    State: every key and value so far.

    Source: Phadke (2025), definition 4.1 with the weights of the other two geometries set to 0.
    """

    name: ClassVar = "rewa-hyperbolic"
    label: ClassVar = "Hyperbolic REWA"
    complexity: ClassVar = "T^2 (p + d)"

    m: int = option(0, "dimensions of Euclidean witnesses, 0 for none", low=0, high=1024)
    n: int = option(0, "coordinates of spherical witnesses, 0 for none", low=0, high=1024)
    p: int = option(15, "dimensions of hyperbolic witnesses, 0 for none", low=0, high=1024)
