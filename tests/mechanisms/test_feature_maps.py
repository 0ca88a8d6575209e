from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms._feature_maps import (
    gauss_laguerre,
    gaussian_directions,
    laguerre_directions,
    node_constants,
    positive_features,
    unit_vectors,
)


def test_unit_vectors_have_length_one_and_zero_stays_zero(normal: Callable[..., Tensor]) -> None:
    x = normal(5, 3)

    torch.testing.assert_close(unit_vectors(x).norm(dim=-1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(unit_vectors(x) * x.norm(dim=-1, keepdim=True), x)
    assert (unit_vectors(torch.zeros(2, 3)) == 0).all()


def test_a_vector_shorter_than_the_floor_is_divided_by_it() -> None:
    torch.testing.assert_close(unit_vectors(torch.tensor([1e-13, 0.0])), torch.tensor([0.1, 0.0]))


def test_two_nodes_have_their_closed_form() -> None:
    nodes, weights = gauss_laguerre(2, 0.0)

    torch.testing.assert_close(nodes, torch.tensor([2 - 2**0.5, 2 + 2**0.5], dtype=torch.float64) / 2)
    torch.testing.assert_close(weights, torch.tensor([2 + 2**0.5, 2 - 2**0.5], dtype=torch.float64) / 8)


@pytest.mark.parametrize(
    ("num_nodes", "shares"),
    [
        (1, [0.825, 0.446, 0.247, 0.028, 0.001]),
        (3, [0.997, 0.866, 0.623, 0.095, 0.005]),
        (8, [1.0, 0.997, 0.942, 0.253, 0.014]),
        (32, [1.0, 1.0, 1.0, 0.717, 0.058]),
    ],
)
def test_quadrature_keeps_this_share_of_the_kernel(num_nodes: int, shares: list[float]) -> None:
    x = torch.tensor([0.5, 0.8, 0.9, 0.99, 1.0], dtype=torch.float64)
    nodes, weights = gauss_laguerre(num_nodes, 1e-3)

    quadrature = (weights * (2 * nodes * x.unsqueeze(1)).exp()).sum(-1)

    assert (quadrature * (2 + 1e-3 - 2 * x)).tolist() == pytest.approx(shares, abs=5.1e-4)


def test_every_feature_knows_its_node() -> None:
    nodes, weights = gauss_laguerre(3, 1e-3)

    s, w = node_constants(3, 1e-3, 2)

    torch.testing.assert_close(s, nodes[[0, 0, 1, 1, 2, 2]].float())
    torch.testing.assert_close(w, weights[[0, 0, 1, 1, 2, 2]].float())


@pytest.mark.parametrize("s", [0.29289, 1.70711])
def test_positive_features_expect_the_exponential_kernel(s: float, normal: Callable[..., Tensor]) -> None:
    q, k = unit_vectors(normal(6, 4)), unit_vectors(normal(6, 4, seed=1))
    directions = (2 * s) ** 0.5 * normal(4, 400_000, seed=2)
    scale, shift = (torch.full((400_000,), value, dtype=torch.float64) for value in (400_000**-0.5, s))

    phi_q, phi_k = (positive_features(u, directions, shift, scale.log()) for u in (q, k))

    torch.testing.assert_close(phi_q @ phi_k.mT, (2 * s * q @ k.mT).exp(), rtol=0.12, atol=0)
    assert (phi_q > 0).all()


def test_exponents_are_clipped_at_twenty() -> None:
    one, unit = torch.ones(1), torch.ones(1, 1)

    clipped = [positive_features(unit, direction * unit, 0 * one, 0 * one).item() for direction in (50.0, -50.0)]

    assert clipped == pytest.approx([torch.tensor(20.0).exp().item(), torch.tensor(-20.0).exp().item()])


def test_directions_are_scaled_by_their_node(generator: torch.Generator) -> None:
    directions, nodes, _ = laguerre_directions(2, 0.0, num_heads=8, dim=16, per_node=512, generator=generator)

    torch.testing.assert_close(directions.var(dim=(0, 1)).view(2, 512).mean(1), 2 * nodes[[0, 512]], rtol=0.02, atol=0)


def test_equal_generators_draw_equal_directions() -> None:
    first, second, other = (
        gaussian_directions("orthogonal", 2, 4, 6, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )

    assert torch.equal(first, second)
    assert not torch.equal(first, other)
