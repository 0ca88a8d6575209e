"""Geometric REWA with Euclidean geometry alone."""

from typing import ClassVar

from synthbench.mechanisms.base import mechanism
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric
from synthbench.options import option


@mechanism
class RewaEuclidean(RewaGeometric):
    r"""Softmax of the negative Euclidean distance :math:`-\alpha \|x - y\| / \tau` between points x of q and y of k.

    This is ``rewa-geometric`` with a single geometry. By default, x and y have 15 coordinates, as many as in the three
    geometries of ``rewa-geometric`` together. Each head maps q and k to x and y by its own linear maps, and learns the
    weight alpha and the temperature tau. With ``power=2`` and all y of equal norm, this mechanism equals softmax
    attention with x and y as queries and keys, apart from a scale.

    State: every key and value so far.

    Source: Phadke (2025), definition 4.1 with the weights of the other two geometries set to 0.
    """

    name: ClassVar = "rewa-euclidean"
    label: ClassVar = "Euclidean REWA"
    complexity: ClassVar = "T^2 (m + d)"

    m: int = option(15, "dimensions of Euclidean witnesses, 0 for none", low=0, high=1024)
    n: int = option(0, "coordinates of spherical witnesses, 0 for none", low=0, high=1024)
    p: int = option(0, "dimensions of hyperbolic witnesses, 0 for none", low=0, high=1024)
