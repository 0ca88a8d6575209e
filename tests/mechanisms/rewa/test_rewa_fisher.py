import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from synthbench.mechanisms.rewa.rewa_fisher import RewaFisher, fisher_rao, published

seeds = st.integers(0, 2**32 - 1)


def distributions(seed: int, length: int, m: int = 5) -> Tensor:
    """Random probabilities of m categories."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(length, m, generator=generator, dtype=torch.float64)).softmax(-1)


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_fisher_rao_is_the_length_of_the_great_circle_in_the_fisher_metric(seed: int) -> None:
    """The roots move along an arc; the metric Σ dp² / p is summed along it."""
    p, q = distributions(seed, 2)
    angle = (p.sqrt() @ q.sqrt()).acos()
    steps = torch.linspace(0, 1, 2001, dtype=torch.float64).unsqueeze(-1)
    roots = (((1 - steps) * angle).sin() * p.sqrt() + (steps * angle).sin() * q.sqrt()) / angle.sin()
    path = roots.square()
    middle = (path[1:] + path[:-1]) / 2
    length = (path.diff(dim=0).square() / middle).sum(-1).sqrt().sum()

    distance = fisher_rao(p.log().unsqueeze(0), q.log().unsqueeze(0)).squeeze()
    torch.testing.assert_close(distance, length, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("distance", [fisher_rao, published])
@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_proposition_10_1_both_distances_are_metrics(distance: Callable[..., Tensor], seed: int) -> None:
    p = distributions(seed, 8).log()
    d = distance(p, p)

    torch.testing.assert_close(d, d.mT)
    assert (d.diagonal() < 1e-6).all()
    assert (d + torch.eye(8, dtype=torch.float64) > 1e-6).all()
    assert (d.unsqueeze(-1) <= d.unsqueeze(-2) + d.mT.unsqueeze(0) + 1e-6).all()


def test_claim_equation_115_is_the_fisher_distance_is_false() -> None:
    """Certain opposites are √2 apart by it and π by Fisher–Rao; nearby distributions differ by a factor √2."""
    certain = torch.tensor([[0.0, -100.0], [-100.0, 0.0]], dtype=torch.float64)
    assert published(certain, certain)[0, 1].item() == pytest.approx(math.sqrt(2))
    assert fisher_rao(certain, certain)[0, 1].item() == pytest.approx(math.pi)

    p = distributions(0, 1)
    nearby = p + 1e-2 * torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0], dtype=torch.float64) * p.amin()
    ratio = fisher_rao(p.log(), nearby.log()) / published(p.log(), nearby.log())
    assert ratio.item() == pytest.approx(math.sqrt(2), rel=1e-2)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("distance", ["fisher-rao", "published"])
def test_scores_are_powers_of_the_distance_over_the_temperature(
    *,
    distance: Literal["fisher-rao", "published"],
    power: int,
    shared: bool,
    normal: Callable[..., Tensor],
    generator: torch.Generator,
) -> None:
    unit = RewaFisher(
        model_dim=8, num_heads=2, m=6, distance=distance, power=power, tau=0.5, shared=shared, generator=generator
    ).double()
    q, k = normal(2, 3, 4, seed=0), normal(2, 5, 4, seed=1)
    key_map = unit.witness.query if unit.witness.key is None else unit.witness.key
    p = torch.einsum("htd,hdm->htm", q, unit.witness.query).softmax(-1).unsqueeze(-2)
    r = torch.einsum("htd,hdm->htm", k, key_map).softmax(-1).unsqueeze(-3)
    expected = {
        "fisher-rao": 2 * (p * r).sqrt().sum(-1).acos(),
        "published": ((p - r) ** 2 / (p + r)).sum(-1).sqrt(),
    }[distance]

    torch.testing.assert_close(unit.scores(q, k), -(expected**power) / 0.5, rtol=1e-6, atol=1e-6)
