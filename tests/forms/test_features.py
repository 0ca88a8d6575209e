"""Features of SLAY and the quadrature behind them."""

import math

import pytest
import torch
from torch import Tensor

from synthbench.forms.feature_maps import positive_features, unit_vectors
from synthbench.forms.quadrature import gauss_laguerre, inverse_distance
from tests.tensors import normal


def test_a_vector_shorter_than_the_floor_is_divided_by_it() -> None:
    torch.testing.assert_close(unit_vectors(torch.tensor([1e-13, 0.0])), torch.tensor([0.1, 0.0]))


def test_exponents_are_clipped_at_twenty() -> None:
    one, unit = torch.ones(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)

    clipped = [positive_features(unit, direction * unit, 0 * one, 0 * one).item() for direction in (50.0, -50.0)]

    assert clipped == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-12)


def test_proposition_2_positive_features_are_unbiased_and_have_this_variance() -> None:
    """Var ⟨φ(q), φ(k)⟩ = (e^(4s + 8sx) - e^(4sx)) / D: since E e^(a·ω) = e^(‖a‖²/2) with a = 2 √(2s) (q + k)."""
    s, d, D, draws = 0.05, 4, 8, 40_000
    q, k = unit_vectors(normal(5, d)), unit_vectors(normal(5, d, seed=1))
    x = (q * k).sum(-1)
    directions = math.sqrt(2 * s) * normal(draws, d, D, seed=2)
    scale, shift = (torch.full((D,), value, dtype=torch.float64) for value in (1 / D, s))

    phi_q, phi_k = (positive_features(u.expand(draws, 5, d), directions, shift, scale.log() / 2) for u in (q, k))
    kernels = (phi_q * phi_k).sum(-1)
    variance = ((4 * s + 8 * s * x).exp() - (4 * s * x).exp()) / D
    deviations = kernels - (2 * s * x).exp()

    assert (deviations.mean(0).abs() < 4 * (variance / draws).sqrt()).all()
    squares = deviations.square()
    assert ((squares.mean(0) - variance).abs() < 4 * squares.std(0) / math.sqrt(draws)).all()


def cosines(epsilon: float, count: int = 20_000) -> Tensor:
    """Dense where the kernel peaks: y = 2 + epsilon - 2x is evenly spaced on a log scale."""
    y = torch.logspace(math.log10(epsilon), math.log10(4 + epsilon), count, dtype=torch.float64)
    return (2 + epsilon - y) / 2


def relative_error(num_nodes: int, epsilon: float) -> Tensor:
    x = cosines(epsilon)
    return inverse_distance(num_nodes, epsilon, x) * (2 + epsilon - 2 * x) - 1


@pytest.mark.parametrize(
    ("num_nodes", "shares"),
    [
        (1, [0.825, 0.446, 0.247, 0.028, 0.001]),
        (3, [0.997, 0.866, 0.623, 0.095, 0.005]),
        (8, [1.0, 0.997, 0.942, 0.253, 0.014]),
        (32, [1.0, 1.0, 1.0, 0.717, 0.058]),
    ],
)
def test_gauss_laguerre_keeps_this_share_of_the_kernel(num_nodes: int, shares: list[float]) -> None:
    x = torch.tensor([0.5, 0.8, 0.9, 0.99, 1.0], dtype=torch.float64)

    assert (inverse_distance(num_nodes, 1e-3, x) * (2 + 1e-3 - 2 * x)).tolist() == pytest.approx(shares, abs=5.1e-4)


def test_claim_uniform_exponential_convergence_of_gauss_laguerre_is_false() -> None:
    """At R = 32 the peak has lost 94 %; three more nodes add 6 per mille."""
    worst = [float(relative_error(num_nodes, 1e-3).abs().max()) for num_nodes in (3, 16, 32, 35)]

    assert worst[2] > 0.94
    assert worst[2] - worst[3] < 0.006
    assert worst[0] / worst[1] < 1.03


def test_gauss_laguerre_never_exceeds_the_kernel() -> None:
    """Its remainder has the sign of an even derivative of e^(2sx) in s: boundedness by 1 / epsilon is kept."""
    for num_nodes in (1, 3, 8, 32):
        assert (relative_error(num_nodes, 1e-3) <= 1e-12).all()


def test_sum_is_that_of_nodes_and_weights_where_nothing_overflows() -> None:
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    nodes, weights = gauss_laguerre(4, 0.1)

    torch.testing.assert_close(inverse_distance(4, 0.1, x), (weights * (2 * nodes * x.unsqueeze(1)).exp()).sum(-1))


def test_sums_are_finite_however_sharp() -> None:
    assert inverse_distance(24, 1e-6, cosines(1e-6)).isfinite().all()
