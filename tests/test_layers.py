import math

import pytest
import torch
from torch import Tensor

from synthbench.layers import Embedding, Linear, project, uniform


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stack(tensors: list[Tensor]) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.stack([tensor.detach() for tensor in tensors]))


def test_uniform_parameters_fill_their_interval() -> None:
    values = uniform((1000,), 0.5, generator())

    assert values.abs().max() <= 0.5
    assert values.max() > 0.49
    assert values.min() < -0.49


@pytest.mark.parametrize("bias", [True, False])
def test_linear_multiplies_and_adds(bias: bool) -> None:  # noqa: FBT001 - a case, not a switch
    layer = Linear(5, 3, bias=bias, generator=generator())
    x = torch.randn(2, 4, 5, generator=generator(1))

    expected = x @ layer.weight + (0 if layer.bias is None else layer.bias)

    torch.testing.assert_close(layer(x), expected)


def test_linear_begins_as_pytorch_does() -> None:
    layer = Linear(400, 300, bias=True, generator=generator())
    assert layer.bias is not None

    for parameter in (layer.weight, layer.bias):
        assert parameter.abs().max() <= 1 / math.sqrt(400)
        assert float(parameter.detach().std()) == pytest.approx(1 / math.sqrt(3 * 400), rel=0.1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 5), (2, 7, 5), (2, 3, 7, 5)])
def test_stacked_linear_layers_compute_what_each_computes_alone(
    bias: bool,  # noqa: FBT001 - a case, not a switch
    shape: tuple[int, ...],
) -> None:
    members = [Linear(5, 3, bias=bias, generator=generator(seed)) for seed in range(2)]
    stacked = Linear(5, 3, bias=bias)
    stacked.weight = stack([member.weight for member in members])
    if bias:
        stacked.bias = stack([member.bias for member in members if member.bias is not None])
    x = torch.randn(2, *shape, generator=generator(2))

    expected = torch.stack([member(x[i]) for i, member in enumerate(members)])

    torch.testing.assert_close(stacked(x), expected)


def test_embedding_looks_up_rows() -> None:
    layer = Embedding(6, 4, generator=generator())
    ids = torch.tensor([[0, 5], [3, 3]])

    torch.testing.assert_close(layer(ids), layer.weight[ids])


def test_stacked_embeddings_look_up_in_their_own_table() -> None:
    members = [Embedding(6, 4, generator=generator(seed)) for seed in range(2)]
    stacked = Embedding(6, 4)
    stacked.weight = stack([member.weight for member in members])
    ids = torch.randint(6, (2, 3, 5), generator=generator(2))

    expected = torch.stack([member(ids[i]) for i, member in enumerate(members)])

    torch.testing.assert_close(stacked(ids), expected)


@pytest.mark.parametrize("leading", [(), (3,), (1, 3), (2, 1, 3), (2, 5, 3)])
def test_project_broadcasts_the_weight_against_the_leading_axes(leading: tuple[int, ...]) -> None:
    x = torch.randn(2, 5, 3, 7, 4, generator=generator())
    weight = torch.randn(*leading, 4, 6, generator=generator(1))

    torch.testing.assert_close(project(x, weight), x @ weight)
