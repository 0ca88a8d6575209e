import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.forms.feature_maps import (
    node_constants,
    node_directions,
    positive_features,
    unit_vectors,
)
from synthbench.forms.quadrature import gauss_laguerre


def test_unit_vectors_have_length_one_and_zero_stays_zero(normal: Callable[..., Tensor]) -> None:
    x = normal(5, 3)

    torch.testing.assert_close(unit_vectors(x).norm(dim=-1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(unit_vectors(x) * x.norm(dim=-1, keepdim=True), x)
    assert (unit_vectors(torch.zeros(2, 3)) == 0).all()


def test_a_vector_shorter_than_the_floor_is_divided_by_it() -> None:
    torch.testing.assert_close(unit_vectors(torch.tensor([1e-13, 0.0])), torch.tensor([0.1, 0.0]))


def test_every_feature_knows_its_node() -> None:
    nodes, weights = gauss_laguerre(3, 1e-3)

    s, w = node_constants(3, 1e-3, 2)

    torch.testing.assert_close(s, nodes[[0, 0, 1, 1, 2, 2]].float())
    torch.testing.assert_close(w, weights[[0, 0, 1, 1, 2, 2]].float())


def test_exponents_are_clipped_at_twenty() -> None:
    one, unit = torch.ones(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)

    clipped = [positive_features(unit, direction * unit, 0 * one, 0 * one).item() for direction in (50.0, -50.0)]

    assert clipped == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-12)


def test_proposition_2_positive_features_are_unbiased_and_have_this_variance(normal: Callable[..., Tensor]) -> None:
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


def test_directions_of_a_node_are_orthogonal_and_each_is_gaussian(generator: torch.Generator) -> None:
    directions = node_directions("orthogonal", num_heads=300, dim=4, num_nodes=2, per_node=6, generator=generator)
    by_node = directions.unflatten(-1, (2, 6))
    inner = torch.einsum("hdni,hdnj->hnij", by_node, by_node)

    for block in (slice(0, 4), slice(4, 6)):
        within = inner[..., block, block]
        torch.testing.assert_close(within, torch.diag_embed(within.diagonal(dim1=-2, dim2=-1)), rtol=0, atol=1e-5)
    assert directions.shape == (300, 4, 12)
    assert abs(float(directions.var()) - 1) < 0.05
    # Squared lengths are χ² of 4 degrees: mean 4, variance 8.
    lengths = directions.square().sum(1)
    assert abs(float(lengths.mean()) - 4) < 4 * (8 / 3600) ** 0.5
    assert abs(float(lengths.var()) - 8) < 1.5
