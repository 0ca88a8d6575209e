import math

import pytest
import torch

from synthbench.forms.feature_maps import positive_features, unit_vectors
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
