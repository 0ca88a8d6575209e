"""Properties of every encoding that turns queries and keys."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.positions import POSITIONS, LearnedRotation
from synthbench.suites.config import ModelSettings
from synthbench.training.ensemble import SequenceModel, stack_models
from tests.positions.rotating import GRID, rotation_of, scramble, turning_of, written_out
from tests.tensors import normal

TERMS = [
    "rope",
    "string",
    "string:basis=identity,frequencies=fixed",
    "espr",
    "espr:null=keep,order=conjugate",
    "espr:commuting=false",
]


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
@pytest.mark.usefixtures("double")
def test_learned_rotations_begin_as_rope(term: str, axes: int) -> None:
    learned, rope = (rotation_of(one, GRID[:, :axes])(normal(3, 2, 12, 8)) for one in (term, "rope"))

    torch.testing.assert_close(learned, rope, rtol=0, atol=1e-12)


@pytest.mark.parametrize("term", TERMS)
def test_it_is_the_same_after_a_copy_and_after_saving(term: str) -> None:
    rotation, other = rotation_of(term, GRID.float()), rotation_of(term, GRID.float(), seed=1)
    x = torch.randn(1, 2, 12, 8, generator=torch.Generator().manual_seed(1))
    other.load_state_dict(rotation.state_dict())

    assert torch.equal(copy.deepcopy(rotation)(x), rotation(x))
    assert torch.equal(other(x), rotation(x))
    assert set(rotation.state_dict()) == {name for name, _ in rotation.named_parameters()}


def model_of(term: str, mechanism: str, coordinates: Tensor, seed: int) -> SequenceModel:
    settings = ModelSettings(block="attention_only", positions=term, model_dim=16, num_heads=2, num_layers=2, bias=True)

    layers = MECHANISMS[mechanism].layers_of({"model_dim": 16, "num_heads": 2, "max_length": 12}, settings.num_layers)
    generator = torch.Generator().manual_seed(seed)
    return SequenceModel(settings, 5, len(coordinates), layers, generator, coordinates)


@pytest.mark.parametrize(
    ("mechanism", "strategy", "term"),
    [
        *[("softmax", "fold", term) for term in TERMS],
        *[("performer-exp", "stack", term) for term in ("rope", "espr:commuting=false")],
        *[("rff", "loop", term) for term in ("rope", "espr:commuting=false")],
    ],
)
@pytest.mark.usefixtures("double")
def test_models_of_several_runs_with_coordinates_on_two_axes_are_those_of_each_alone(
    mechanism: str, strategy: Any, term: str
) -> None:
    models = [model_of(term, mechanism, GRID, seed) for seed in range(2)]
    tokens = torch.randint(5, (2, 3, 12), generator=torch.Generator().manual_seed(0))

    together = stack_models(models, strategy)
    logits = torch.stack([model(rows) for model, rows in zip(models, tokens, strict=True)])
    torch.testing.assert_close(together(tokens), logits, rtol=0, atol=1e-10)
    last = together(tokens, torch.tensor([11]))
    torch.testing.assert_close(last, logits[:, :, -1:], rtol=0, atol=1e-10)

    together(tokens).square().sum().backward()
    for name, parameter in together.named_parameters():
        if "rotation" in name:
            assert parameter.grad is not None
            assert (parameter.grad.flatten(1).abs().amax(-1) > 0).all()  # in every run


SEES_OFFSETS = ["none", "rope", "string", "espr", "espr:null=keep", "espr:null=keep,order=conjugate"]
moved = given(
    seed=st.integers(0, 2**31 - 1), shift=st.tuples(st.integers(0, 100), st.integers(0, 100)), axes=st.integers(1, 2)
)
few = settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])


def outputs_at(term: str, seed: int, coordinates: Tensor) -> Tensor:
    """The outputs of a model of softmax attention after every rotation has left the form in which it begins."""
    model = model_of(term, "softmax", coordinates, seed)
    for layer in model.layers:
        assert isinstance(layer.mixer, Attention)
        if layer.mixer.rotation is not None:
            scramble(layer.mixer.rotation)
    outputs: Tensor = model(torch.randint(5, (2, 12), generator=torch.Generator().manual_seed(seed)))
    return outputs.detach()


@pytest.mark.parametrize("term", SEES_OFFSETS)
@pytest.mark.usefixtures("double")
@few
@moved
def test_moved_coordinates_change_no_output_of_commuting_generators(
    term: str, seed: int, shift: tuple[int, int], axes: int
) -> None:
    here = GRID[:, :axes]
    there = here + torch.tensor(shift[:axes])

    before, after = (outputs_at(term, seed, coordinates) for coordinates in (here, there))
    torch.testing.assert_close(after, before, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("term", ["espr:commuting=false", "espr:order=conjugate"])
def test_moved_coordinates_change_outputs_of_other_generators(term: str) -> None:
    before, after = (outputs_at(term, 0, coordinates) for coordinates in (GRID, GRID + 7))

    assert (after - before).abs().max() > 1e-4


def irreducibility(term: str) -> tuple[Any, Tensor]:
    rotation = rotation_of(term, GRID)
    assert isinstance(rotation, LearnedRotation)
    scramble(rotation)
    return rotation, rotation.irreducibility([1, 7])


@pytest.mark.parametrize("term", ["string", "string:basis=identity", "espr:spread=0"])
@pytest.mark.usefixtures("double")
def test_ir_spec_is_0_without_a_mixing(term: str) -> None:
    rotation, measured = irreducibility(term)
    if term.startswith("espr"):
        with torch.no_grad():
            rotation.skew.zero_()
        measured = rotation.irreducibility([1, 7])

    torch.testing.assert_close(measured, torch.zeros(2), rtol=0, atol=1e-12)


@pytest.mark.parametrize("term", ["espr", "espr:order=conjugate", "espr:commuting=false"])
@pytest.mark.usefixtures("double")
def test_ir_spec_is_the_formula_written_out(term: str) -> None:
    rotation, measured = irreducibility(term)

    for head in range(2):
        of_moves = []
        for move in (torch.full((2,), 1.0), torch.full((2,), 7.0)):
            ends = [(written_out(rotation, head, r), written_out(rotation, head, r + move)) for r in GRID]
            differences = [(here.T @ there - turning_of(rotation, head, move))[:6, :6] for here, there in ends]
            of_moves.append(torch.linalg.matrix_norm(torch.stack(differences), ord=2).max())
        torch.testing.assert_close(measured[head], sum(of_moves) / 2, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("double")
def test_ir_spec_of_stacked_runs_is_that_of_each_and_measuring_changes_nothing() -> None:
    models = [model_of("espr:commuting=false", "softmax", GRID, seed) for seed in range(2)]
    tokens = torch.zeros(2, 1, 12, dtype=torch.int64)
    together = stack_models(models, "fold")
    before = together(tokens)
    alone, stacked = (
        [part for part in model.modules() if isinstance(part, LearnedRotation)] for model in (models[1], together)
    )

    assert stacked[0].irreducibility([1, 7]).shape == (2, 2)
    torch.testing.assert_close(stacked[0].irreducibility([7])[1], alone[0].irreducibility([7]), rtol=0, atol=1e-10)
    assert torch.equal(together(tokens), before)


@pytest.mark.parametrize("term", ["string", "espr", "espr:commuting=false"])
def test_coordinates_of_another_number_of_axes_are_refused(term: str) -> None:
    rotation = rotation_of(term, GRID.float())
    assert isinstance(rotation, LearnedRotation)
    rotation.coordinates = GRID[:, :1].float()

    with pytest.raises(UsageError, match="coordinates have 1 axes; allowed: 2"):
        rotation(torch.zeros(1, 2, 12, 8))


def test_layers_do_not_share_a_rotation() -> None:
    first, second = (layer.mixer for layer in model_of("espr", "softmax", GRID.float(), seed=0).layers)

    assert isinstance(first, Attention)
    assert isinstance(second, Attention)
    assert first.rotation is not second.rotation
