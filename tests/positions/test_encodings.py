"""Formulas of each position encoding, and properties of those that turn queries and keys."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.positions import POSITIONS
from synthbench.positions.espr import Espr, MixedRotation
from synthbench.positions.rope import Rope
from synthbench.positions.string import String
from tests.mechanisms.loops import moved, turned
from tests.positions.rotating import (
    GRID,
    cayley_of,
    matrices,
    planes_of,
    rotation_of,
    turning_of,
    written_out,
)
from tests.tensors import normal
from tests.training.cells import cell_of

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("rope", {"model_dim": 14}, "width of a head is 7; allowed with positions 'rope': even numbers"),
        ("rope", {"model_dim": 4}, "turn 1 planes of a head of width 2; .* here 2"),
        ("string", {"model_dim": 6}, "turn 1 planes of a head of width 3; .* here 2"),
        ("espr", {"model_dim": 14, "active": 0.3}, "turn 1 planes of a head of width 7; .* here 2"),
        ("espr", {"model_dim": 2}, "turn 0 planes of a head of width 1; .* here 2"),
        ("rope", {"length": 5}, r"coordinates have the shape \[12, 2\]"),
    ],
)
def test_heads_and_coordinates_that_do_not_fit_are_refused(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        POSITIONS[name](**{"num_heads": 2, "length": 12, "coordinates": GRID, **fields}).rotation(None)


@pytest.mark.parametrize(
    "term",
    ["string", "string:basis=identity,frequencies=fixed"]
    + [f"espr:active=1,spread=0,commuting={commuting}" for commuting in ("true", "false")],
)
@pytest.mark.parametrize("axes", [1, 2])
def test_learned_rotations_begin_as_rope(term: str, axes: int) -> None:
    learned, rope = (rotation_of(one, GRID[:, :axes])(normal(3, 2, 12, 8)) for one in (term, "rope"))

    torch.testing.assert_close(learned, rope, rtol=0, atol=1e-12)


def irreducibility(term: str) -> tuple[Any, Tensor]:
    rotation = moved(rotation_of(term, GRID))
    return rotation, rotation.irreducibility([1, 7])


@pytest.mark.parametrize("term", ["string", "string:basis=identity", "espr:spread=0"])
def test_ir_spec_is_0_without_a_mixing(term: str) -> None:
    rotation, measured = irreducibility(term)
    if term.startswith("espr"):
        with torch.no_grad():
            rotation.skew.zero_()
        measured = rotation.irreducibility([1, 7])

    torch.testing.assert_close(measured, torch.zeros(2), rtol=0, atol=1e-12)


@pytest.mark.parametrize("term", ["espr", "espr:order=conjugate", "espr:commuting=false"])
def test_ir_spec_is_the_formula_written_out(term: str) -> None:
    rotation, measured = irreducibility(term)

    for head in range(2):
        of_moves = []
        for move in (torch.full((2,), 1.0), torch.full((2,), 7.0)):
            ends = [(written_out(rotation, head, r), written_out(rotation, head, r + move)) for r in GRID]
            differences = [(here.T @ there - turning_of(rotation, head, move))[:6, :6] for here, there in ends]
            of_moves.append(torch.linalg.matrix_norm(torch.stack(differences), ord=2).max())
        torch.testing.assert_close(measured[head], sum(of_moves) / 2, rtol=0, atol=1e-10)


def test_layers_do_not_share_a_rotation() -> None:
    model = cell_of("softmax", positions="espr").model(torch.Generator())

    assert len({id(layer.mixer.rotation) for layer in model.layers}) == 2


# Formulas


def test_rope_multiplies_pairs_of_channels_by_a_complex_phase() -> None:
    q = normal(2, 3, 20, 8)
    rotation = Rope(model_dim=24, num_heads=3, length=20, base=500.0).rotation(None)

    torch.testing.assert_close(rotation(q), turned(q, base=500.0), rtol=0, atol=1e-12)


def test_each_axis_of_rope_has_its_own_planes_and_the_frequencies_of_a_narrower_head() -> None:
    q = normal(2, 1, 12, 10)
    turned = Rope(model_dim=10, num_heads=1, length=12, coordinates=GRID).rotation(None)(q)

    for axis, channels, width in ((0, slice(0, 6), 6), (1, slice(6, 10), 4)):
        alone = Rope(model_dim=width, num_heads=1, length=12, coordinates=GRID[:, axis : axis + 1]).rotation(None)
        torch.testing.assert_close(turned[..., channels], alone(q[..., channels]), rtol=0, atol=1e-12)


def test_angles_of_rope_at_far_positions_are_exact_to_the_precision_of_the_parameters() -> None:
    far = torch.tensor([[131_071.0]])
    x = torch.tensor([1.0, 0.0], dtype=torch.float32).view(1, 1, 1, 2)
    turned = Rope(model_dim=2, num_heads=1, length=1, coordinates=far).rotation(None).float()(x)

    assert turned.flatten().tolist() == pytest.approx([math.cos(131_071), math.sin(131_071)], abs=1e-7)


@pytest.mark.parametrize("dim", [6, 7])
def test_string_is_the_exponential_of_generators_in_a_learned_basis(dim: int) -> None:
    rotation = moved(String(model_dim=2 * dim, num_heads=2, length=12, coordinates=GRID).rotation(None))
    computed = matrices(rotation, 2, 12, dim)

    for head in range(2):
        basis = cayley_of(rotation.skew[head], dim)
        for t, r in enumerate(GRID):
            generator = basis @ planes_of(rotation.frequencies[head] @ r, dim) @ basis.T
            torch.testing.assert_close(
                computed[head, t].detach(), torch.linalg.matrix_exp(generator).detach(), rtol=0, atol=1e-11
            )


DIM, ACTIVE = 7, 4


def espr(**options: Any) -> MixedRotation:
    """Two heads of seven channels, two of the three planes active."""
    encoding = Espr(model_dim=2 * DIM, num_heads=2, length=12, coordinates=GRID, active=0.67, **options)
    return encoding.rotation(torch.Generator().manual_seed(3))


@pytest.mark.parametrize("order", ["post", "conjugate"])
@pytest.mark.parametrize("commuting", [True, False])
def test_both_orders_of_espr_are_the_written_out_maps_with_null_kept_or_dropped(*, order: str, commuting: bool) -> None:
    options = {"order": order, "commuting": commuting}
    kept, dropped = (moved(espr(null=null, **options)) for null in ("keep", "drop"))
    computed, projected = matrices(kept, 2, 12, DIM).detach(), matrices(dropped, 2, 12, DIM).detach()

    active = torch.diag(torch.arange(DIM) < ACTIVE).double()
    for head in range(2):
        for t, r in enumerate(GRID):
            expected = written_out(kept, head, r)
            torch.testing.assert_close(computed[head, t], expected, rtol=0, atol=1e-11)
            of_active = (DIM / ACTIVE) ** 0.25 * active @ expected @ active
            torch.testing.assert_close(projected[head, t], of_active, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("share", "num_active"), [(0.0, 2), (0.25, 4), (0.5, 8), (0.75, 12), (1.0, 16)])
def test_espr_turns_the_given_share_of_the_planes(share: float, num_active: int) -> None:
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


@pytest.mark.parametrize("first", [2, 100])
def test_a_learned_table_that_ends_before_the_tokens_is_refused(first: int) -> None:
    with pytest.raises(UsageError, match=rf"{first + 5} tokens; allowed: up to 6"):
        POSITIONS["learned"](model_dim=4, num_heads=1, length=6).embed(torch.zeros(2, 5, 4), first)
