"""Riemannian REWA: distances under a learned metric tensor."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from synthbench.forms.shapes import Keys, PairScores, Queries
from synthbench.mechanisms.base import ScoreAttention, mechanism
from synthbench.mechanisms.rewa._geometry import Perceptron
from synthbench.mechanisms.rewa._operators import TemperedAttention, WitnessMap, one_a_head
from synthbench.options import option

FLOOR = 1e-3
"""Smallest eigenvalue of a metric tensor."""


def trapezoid_distance(
    x: Queries,
    x_metric: Float[Tensor, "*batch queries dim dim"],
    y: Keys,
    y_metric: Float[Tensor, "*batch keys dim dim"],
) -> PairScores:
    r"""Compute the length of the chord h = x - y for every pair of points, under the mean of the two metric tensors.

    This length, :math:`\sqrt{h^T (G(x) + G(y)) h / 2}` with the metric tensor G, is the geodesic distance up to an
    error of third order in h. With the metric tensor of x or y alone, the error would be of second order. The length is
    symmetric and positive, but may violate the triangle inequality for long chords.
    """
    squared = (_quadratic(x, x_metric, y) + _quadratic(y, y_metric, x).mT) / 2
    rounding = torch.finfo(x.dtype).eps * (_norm(x, x_metric).unsqueeze(-1) + _norm(y, y_metric).unsqueeze(-2)).detach()
    # A square below its rounding error is replaced by that error, so that the gradient is 0 instead of infinite.
    return torch.maximum(squared, rounding.clamp(min=torch.finfo(x.dtype).tiny)).sqrt()


def _quadratic(x: Tensor, metric: Tensor, y: Tensor) -> Tensor:
    """Compute (x - y)ᵀ G(x) (x - y), with G(x) in ``metric``, for every pair, by expanding the product."""
    lowered = (metric @ x.unsqueeze(-1)).squeeze(-1)
    outer = y.unsqueeze(-1) * y.unsqueeze(-2)
    return _norm(x, metric).unsqueeze(-1) - 2 * lowered @ y.mT + metric.flatten(-2) @ outer.flatten(-2).mT


def _norm(x: Tensor, metric: Tensor) -> Tensor:
    return (x * (metric @ x.unsqueeze(-1)).squeeze(-1)).sum(-1)


@mechanism
class RewaRiemannian(TemperedAttention, ScoreAttention):
    r"""Softmax of the negative distance :math:`-d_G^\pi / \tau` between m-dimensional points, with a learned metric G.

    The points, called witnesses, are linear maps of queries and keys. The metric tensor is :math:`G(x) = A(x) A(x)^T +
    10^{-3} I`. A(x) is the identity plus the m x m output of a network with one hidden layer; each head has its own
    network. Geodesics are approximated by chords h = x - y: :math:`d_G^2(x, y) = h^T (G(x) + G(y)) h / 2`. This is
    exact where G is constant; elsewhere the error of the distance is of third order in h. The exponent π is the option
    ``power``. The temperature τ of each head is learned and starts at √m ``tau``.

    State: every key and value so far.

    Source: Phadke (2025), definition 10.1. The paper does not say how G stays positive definite, and finds the geodesic
    of every pair of tokens by a neural ODE. Here, the length of the chord takes only two matrix products. Between
    distant points, the chord is longer than the geodesic.
    """

    name: ClassVar = "rewa-riemannian"
    label: ClassVar = "Riemannian REWA"
    complexity: ClassVar = "T^2 (m^2 + d)"

    m: int = option(5, "dimensions of a witness", low=1, high=64)
    power: int = option(1, "power of the distance, 1 as published", low=1, high=2)
    shared: bool = option(True, "whether queries and keys share the map to witnesses")  # noqa: FBT003
    tau: float = option(1.0, "temperature to start from, times √m", low=1e-3, high=1e3)
    hidden: int = option(16, "hidden units of the metric's network", low=1, high=1024)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw the map to witnesses, then the network."""
        self.witness = WitnessMap(self.num_heads, self.head_dim, self.m, shared=self.shared, generator=generator)
        self.network = Perceptron(self.num_heads, self.m, self.hidden, self.m**2, generator=generator)
        self.temperature = one_a_head(self.num_heads, self.tau * self.m**0.5)

    def metric_tensor(self, points: Float[Tensor, "*batch length m"]) -> Float[Tensor, "*batch length m m"]:
        """Compute G at every point: a symmetric matrix with eigenvalues of at least ``FLOOR``."""
        identity = torch.eye(self.m, dtype=points.dtype, device=points.device)
        root: Tensor = identity + self.network(points).unflatten(-1, (self.m, self.m))
        return root @ root.mT + FLOOR * identity

    def scores(self, q: Queries, k: Keys) -> PairScores:
        """Compute negative distances (squared if ``power`` is 2) from queries to keys, divided by the temperature."""
        x, y = self.witness(q, "query"), self.witness(k, "key")
        distances = trapezoid_distance(x, self.metric_tensor(x), y, self.metric_tensor(y))
        return -(distances if self.power == 1 else distances.square()) / self.temperature()
