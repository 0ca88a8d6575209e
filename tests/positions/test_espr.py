from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.positions.espr import Espr, MixedRotation
from tests.positions.rotating import GRID, matrices, scramble, written_out
from tests.tensors import normal

pytestmark = pytest.mark.usefixtures("double")

DIM, ACTIVE = 7, 4


def espr(coordinates: Tensor, **options: Any) -> MixedRotation:
    """Two heads of seven channels, two of the three planes active."""
    fields: dict[str, Any] = {
        "model_dim": 2 * DIM,
        "num_heads": 2,
        "length": len(coordinates),
        "coordinates": coordinates,
    }
    return Espr(**(fields | {"active": 0.67} | options)).rotation(torch.Generator().manual_seed(3))


@pytest.mark.parametrize("order", ["post", "conjugate"])
@pytest.mark.parametrize("commuting", [True, False])
def test_both_orders_are_the_written_out_maps_with_null_kept_and_dropped(*, order: str, commuting: bool) -> None:
    options = {"order": order, "commuting": commuting}
    kept, dropped = espr(GRID, null="keep", **options), espr(GRID, null="drop", **options)
    scramble(kept)
    scramble(dropped)
    computed, projected = matrices(kept, 2, 12, DIM).detach(), matrices(dropped, 2, 12, DIM).detach()

    active = torch.diag(torch.arange(DIM) < ACTIVE).double()
    for head in range(2):
        for t, r in enumerate(GRID):
            expected = written_out(kept, head, r)
            torch.testing.assert_close(computed[head, t], expected, rtol=0, atol=1e-11)
            of_active = (DIM / ACTIVE) ** 0.25 * active @ expected @ active
            torch.testing.assert_close(projected[head, t], of_active, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("share", "num_active"), [(0.0, 2), (0.25, 4), (0.5, 8), (0.75, 12), (1.0, 16)])
def test_positions_turn_the_given_share_of_the_planes(share: float, num_active: int) -> None:
    rotation = Espr(model_dim=16, num_heads=1, length=3, active=share, null="keep", spread=0.0).rotation(None)
    turned = rotation(torch.ones(1, 1, 3, 16))

    assert rotation.num_active == num_active
    assert ((turned[0, 0, 1] != 1).nonzero().max() + 1).item() == num_active
    assert (turned[..., num_active:] == 1).all()


def test_what_mixes_active_and_null_channels_learns_because_it_does_not_begin_at_zero() -> None:
    q, k = normal(1, 1, 9, 4), normal(1, 1, 9, 4, seed=1)

    def gradient_of_mixing(spread: float) -> float:
        encoding = Espr(model_dim=4, num_heads=1, length=9, active=0.5, spread=spread)
        rotation = encoding.rotation(torch.Generator().manual_seed(0))
        (rotation(q) @ rotation(k).mT).tril().square().sum().backward()
        assert rotation.skew.grad is not None
        return rotation.skew.grad[0, 1:5].abs().max().item()  # rows 0, 1 against columns 2, 3

    assert gradient_of_mixing(0.0) < 1e-12
    assert gradient_of_mixing(0.1) > 0.1
