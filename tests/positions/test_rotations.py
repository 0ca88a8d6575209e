"""What holds for every encoding that turns queries and keys."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.errors import UsageError
from synthbench.layers import Rotation
from synthbench.mechanisms import MECHANISMS, Attention
from synthbench.positions import POSITIONS
from synthbench.positions._rotations import cayley, num_entries, skew_matrix
from synthbench.suites.config import ModelSettings
from synthbench.terms import configured
from synthbench.training.ensemble import SequenceModel, stack_models

TERMS = [
    "rope",
    "string",
    "string:basis=identity,frequencies=fixed",
    "espr",
    "espr:null=keep,order=conjugate",
    "espr:commuting=false",
]


def rotation_of(term: str, coordinates: Tensor, seed: int = 0) -> Rotation:
    """The rotation of two heads of eight channels."""
    encoding, knobs = configured(POSITIONS, term)
    shape = {"model_dim": 16, "num_heads": 2, "length": len(coordinates), "coordinates": coordinates}
    fields: dict[str, Any] = {**shape, **knobs}
    rotation = encoding(**fields).rotation(torch.Generator().manual_seed(seed))
    assert isinstance(rotation, Rotation)
    return rotation


@pytest.mark.parametrize("term", TERMS)
def test_it_is_the_same_after_a_copy_and_after_saving(term: str, grid: Tensor) -> None:
    rotation, other = rotation_of(term, grid.float()), rotation_of(term, grid.float(), seed=1)
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
def test_models_of_several_members_with_coordinates_on_two_axes_are_those_of_each_alone(
    mechanism: str, strategy: Any, term: str, grid: Tensor
) -> None:
    models = [model_of(term, mechanism, grid, seed) for seed in range(2)]
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
            assert (parameter.grad.flatten(1).abs().amax(-1) > 0).all()  # in every member


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.usefixtures("double")
def test_a_model_sees_the_order_of_its_tokens(term: str, grid: Tensor) -> None:
    model = model_of(term, "softmax", grid, seed=0)
    tokens = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]])
    swapped = tokens[:, [1, 0, *range(2, 12)]]

    assert (model(tokens)[:, -1] - model(swapped)[:, -1]).abs().max() > 1e-6


def test_layers_do_not_share_a_rotation(grid: Tensor) -> None:
    first, second = (layer.mixer for layer in model_of("espr", "softmax", grid.float(), seed=0).layers)

    assert isinstance(first, Attention)
    assert isinstance(second, Attention)
    assert first.rotation is not second.rotation


def test_coordinates_for_another_number_of_tokens_are_refused(grid: Tensor) -> None:
    with pytest.raises(UsageError, match=r"coordinates have the shape \[12, 2\]"):
        POSITIONS["rope"](model_dim=16, num_heads=2, length=5, coordinates=grid)


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
def test_a_skew_matrix_has_the_entries_below_its_diagonal(dim: int) -> None:
    entries = torch.arange(1.0, num_entries(dim) + 1)
    skew = skew_matrix(entries, dim)

    assert torch.equal(skew, -skew.mT)
    assert skew.mT[torch.ones(dim, dim).triu(1).bool()].tolist() == entries.tolist()


def test_cayley_of_nothing_is_the_identity() -> None:
    assert torch.equal(cayley(torch.zeros(2, 3, 3)), torch.eye(3).expand(2, 3, 3))
