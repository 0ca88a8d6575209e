import math
from functools import partial

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa._geometry import euclidean_distance, hyperbolic_distance
from synthbench.mechanisms.rewa.rewa_riemannian import FLOOR, RewaRiemannian, trapezoid_distance
from tests.mechanisms.loops import built
from tests.tensors import normal

build = partial(built, RewaRiemannian)


def poincare(x: Tensor) -> Tensor:
    """Eq. 123 as a tensor."""
    return (4 / (1 - x.square().sum(-1)).square())[..., None, None] * torch.eye(x.shape[-1], dtype=x.dtype)


def errors(h: float) -> tuple[float, float]:
    """Of the chord under the mean of two tensors, and under the first alone, against the geodesic distance."""
    x = torch.tensor([[0.3, 0.2, -0.1]], dtype=torch.float64)
    y = x + h * torch.tensor([[0.6, 0.64, 0.48]], dtype=torch.float64)
    exact = hyperbolic_distance(x, y).item()
    both = trapezoid_distance(x, poincare(x), y, poincare(y)).item()
    first = trapezoid_distance(x, poincare(x), y, poincare(x)).item()
    return abs(both - exact), abs(first - exact)


def test_the_chord_is_the_geodesic_up_to_third_order() -> None:
    """Halving the step divides the error by 8; with the tensor of one end by 4."""
    coarse, fine = errors(0.02), errors(0.01)

    assert coarse[0] / fine[0] == pytest.approx(8, rel=0.05)
    assert coarse[1] / fine[1] == pytest.approx(4, rel=0.05)


def test_a_constant_metric_is_measured_exactly() -> None:
    x, y, root = normal(2, 5, 3), normal(2, 4, 3, seed=1), normal(3, 3, seed=2)
    metric = root @ root.mT
    distances = trapezoid_distance(x, metric.expand(2, 5, 3, 3), y, metric.expand(2, 4, 3, 3))

    torch.testing.assert_close(distances, euclidean_distance(x @ root, y @ root))


@pytest.mark.parametrize("power", [1, 2])
def test_scores_are_those_of_each_pair_written_out(power: int) -> None:
    rewa = build(power=power, m=3, tau=0.7)
    q, k = normal(2, 4, 4), normal(2, 5, 4, seed=1)
    scores, network = rewa.scores(q, k), rewa.network

    def tensor(x: Tensor, head: int) -> Tensor:
        hidden = torch.tanh(x @ network.inner[head] + network.inner_bias[head, 0])
        root = torch.eye(3) + (hidden @ network.outer[head] + network.outer_bias[head, 0]).view(3, 3)
        return root @ root.mT + 1e-3 * torch.eye(3)

    for head in range(2):
        for i in range(4):
            for j in range(5):
                x, y = (z @ rewa.witness.query[head] for z in (q[head, i], k[head, j]))
                mean = (tensor(x, head) + tensor(y, head)) / 2
                distance = math.sqrt(((x - y) @ mean @ (x - y)).item())
                expected = -(distance**power) / (0.7 * 3**0.5)
                assert scores[head, i, j].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_metric_is_symmetric_and_positive(scale: float) -> None:
    rewa = build()
    metric = rewa.metric_tensor(scale * normal(2, 50, 5))

    torch.testing.assert_close(metric, metric.mT)
    assert (torch.linalg.eigvalsh(metric) >= FLOOR * (1 - 1e-6)).all()
