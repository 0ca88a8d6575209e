import math

import pytest
import torch

from synthbench.mechanisms.rewa.rewa_fisher import RewaFisher, fisher_rao, published
from tests.mechanisms.loops import built, mapped
from tests.tensors import normal


def test_claim_equation_115_is_the_fisher_distance_is_false() -> None:
    """Certain opposites are √2 apart by it and π by Fisher–Rao; nearby distributions differ by a factor √2."""
    certain = torch.tensor([[0.0, -100.0], [-100.0, 0.0]], dtype=torch.float64)
    assert published(certain, certain)[0, 1].item() == pytest.approx(math.sqrt(2))
    assert fisher_rao(certain, certain)[0, 1].item() == pytest.approx(math.pi)

    p = (2 * normal(1, 5)).softmax(-1)
    nearby = p + 1e-2 * torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0], dtype=torch.float64) * p.amin()
    ratio = fisher_rao(p.log(), nearby.log()) / published(p.log(), nearby.log())
    assert ratio.item() == pytest.approx(math.sqrt(2), rel=1e-2)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("distance", ["fisher-rao", "published"])
def test_scores_are_powers_of_the_distance_over_the_temperature(*, distance: str, power: int, shared: bool) -> None:
    unit = built(RewaFisher, m=6, distance=distance, power=power, tau=0.5, shared=shared)
    q, k = normal(2, 3, 4, seed=0), normal(2, 5, 4, seed=1)
    of_query, of_key = mapped(unit.witness, q, k)
    p, r = of_query.softmax(-1).unsqueeze(-2), of_key.softmax(-1).unsqueeze(-3)
    expected = {
        "fisher-rao": 2 * (p * r).sqrt().sum(-1).acos(),
        "published": ((p - r) ** 2 / (p + r)).sum(-1).sqrt(),
    }[distance]

    torch.testing.assert_close(unit.scores(q, k), -(expected**power) / 0.5, rtol=1e-6, atol=1e-6)
