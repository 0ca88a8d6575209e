from functools import partial

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_adaptive import RewaAdaptive
from tests.mechanisms.loops import built
from tests.tensors import normal

build = partial(built, RewaAdaptive)


def shares_of(adaptive: RewaAdaptive, q: Tensor, head: int) -> Tensor:
    """Algorithm 8 for one query: softmax of a network with one hidden layer."""
    network = adaptive.gate.network
    hidden = torch.tanh(q @ network.inner[head] + network.inner_bias[head, 0])
    return (hidden @ network.outer[head] + network.outer_bias[head, 0]).softmax(-1)


@pytest.mark.parametrize("power", [1, 2])
def test_algorithm_8_every_query_weighs_the_distances_by_its_own_softmax(power: int) -> None:
    adaptive = build(power=power, tau=0.4)
    q, k = normal(2, 5, 4), normal(2, 5, 4, seed=1)
    distances = [adaptive.witnesses.distance(geometry, q, k) for geometry in ("euclidean", "spherical", "hyperbolic")]
    scores = adaptive.scores(q, k)

    for head in range(2):
        for i in range(5):
            shares = shares_of(adaptive, q[head, i], head)
            expected = -sum(share * d[head, i] for share, d in zip(shares, distances, strict=True)) / 0.4
            torch.testing.assert_close(scores[head, i], expected, rtol=1e-6, atol=1e-6)


def test_a_phase_leaves_the_shares_to_the_geometries_that_act() -> None:
    adaptive = build()
    q = normal(2, 5, 4)
    whole = torch.cat(list(adaptive.gate(q, adaptive.witnesses).values()), -1)
    adaptive.enter_phase(2)
    shares = torch.cat(list(adaptive.gate(q, adaptive.witnesses).values()), -1)

    assert (shares[..., 2] == 0).all()
    torch.testing.assert_close(shares[..., :2], whole[..., :2] / whole[..., :2].sum(-1, keepdim=True))
    (gradient,) = torch.autograd.grad(adaptive.scores(q, q).sum(), [adaptive.gate.network.outer])
    assert gradient.isfinite().all()


def test_metrics_are_means_over_the_queries() -> None:
    adaptive = build()
    x = normal(3, 5, 8)
    q = adaptive.heads(x)[0]
    metrics = adaptive.metrics(x)

    for head in range(2):
        mean = torch.stack([shares_of(adaptive, q[b, head, t], head) for b in range(3) for t in range(5)]).mean(0)
        measured = torch.stack([metrics[name][head] for name in ("alpha", "beta", "gamma")])
        torch.testing.assert_close(measured, mean)
        torch.testing.assert_close(metrics["kappa"][head], mean[2] - mean[1])
