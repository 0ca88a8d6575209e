from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.rewa.rewa_geometric import RewaGeometric

GEOMETRIES = {"rewa-euclidean": (15, 0, 0), "rewa-spherical": (0, 15, 0), "rewa-hyperbolic": (0, 0, 15)}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_it_is_the_geometric_one_with_the_other_widths_at_zero(name: str, normal: Callable[..., Tensor]) -> None:
    m, n, p = GEOMETRIES[name]
    seeds = [torch.Generator().manual_seed(0) for _ in range(2)]
    general = RewaGeometric(model_dim=16, num_heads=2, m=m, n=n, p=p, generator=seeds[0]).double()
    alone = MECHANISMS[name](model_dim=16, num_heads=2, generator=seeds[1]).double()
    x = normal(2, 9, 16)

    assert torch.equal(alone(x), general(x))


def test_spherical_scores_do_not_see_the_length_of_a_key(normal: Callable[..., Tensor]) -> None:
    sphere, flat = (
        MECHANISMS[name](model_dim=16, num_heads=2, generator=torch.Generator().manual_seed(0)).double()
        for name in ("rewa-spherical", "rewa-euclidean")
    )
    assert isinstance(sphere, RewaGeometric)
    assert isinstance(flat, RewaGeometric)
    q, k = normal(2, 2, 9, 8), normal(2, 2, 9, 8, seed=1)

    torch.testing.assert_close(sphere.scores(q, 3 * k), sphere.scores(q, k))
    assert (flat.scores(q, 3 * k) - flat.scores(q, k)).abs().min() > 0
