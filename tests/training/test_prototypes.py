"""Prototypes: scores are kernels written out, members together are members alone, and what has no kernel is refused."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.errors import ContractError, UsageError
from synthbench.layers import YatProduct
from synthbench.mechanisms import MECHANISMS
from synthbench.training import prototypes
from synthbench.training.ensemble import stack_models
from synthbench.training.prototypes import BagModel, PrototypeModel, check_alone, kernel_values

DIM, CLASSES, LEVELS = 12, 5, 256
KERNELS = ["softmax", "yat", "yat-spherical", "slay", "performer", "linear"]


def model_of(name: str, seed: int = 0, **fields: object) -> PrototypeModel:
    generator = torch.Generator().manual_seed(seed)
    given = {"model_dim": DIM, "num_heads": 1, "max_length": DIM, "bias": False, **fields}
    return PrototypeModel(MECHANISMS[name], given, CLASSES, LEVELS, generator).double()


def bag_model_of(name: str, seed: int = 0) -> BagModel:
    given = {"model_dim": DIM, "num_heads": 1, "max_length": 8, "bias": False}
    return BagModel(MECHANISMS[name], given, CLASSES, LEVELS, torch.Generator().manual_seed(seed)).double()


def tokens(*leading: int, seed: int = 0) -> Tensor:
    return torch.randint(LEVELS, (*leading, DIM), generator=torch.Generator().manual_seed(seed))


def scale(model: PrototypeModel) -> float:
    return float((CLASSES / math.log(1 + CLASSES)) ** model.alpha.item())


def test_an_inner_product_is_a_linear_classifier_without_a_bias() -> None:
    model, x = model_of("softmax"), tokens(1, 7)
    expected = (x[0] / 255).double() @ model.weight[0].T / math.sqrt(DIM)

    torch.testing.assert_close(model(x)[0, :, 0], scale(model) * expected)


def test_a_yat_kernel_is_the_yat_layer() -> None:
    model, x = model_of("yat"), tokens(1, 7)
    with torch.no_grad():
        model.alpha.fill_(1.3)
    layer = YatProduct(DIM, CLASSES, bias=False, epsilon=1e-3).double()
    with torch.no_grad():
        layer.weight.copy_(model.weight[0].T)
        layer.alpha.fill_(1.3)

    torch.testing.assert_close(model(x)[0, :, 0], layer((x[0] / 255).double()))


def test_a_feature_kernel_is_the_product_of_features() -> None:
    model, x = model_of("performer"), tokens(1, 7)
    (kernel,) = model.kernels
    directions = kernel.get_buffer("directions")[0]
    of_x, of_w = ((some @ directions).relu() for some in ((x[0] / 255).double(), model.weight[0]))

    torch.testing.assert_close(model(x)[0, :, 0], scale(model) * of_x @ of_w.T)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("make", "length"), [(model_of, DIM), (bag_model_of, 8)], ids=["vectors", "bags"])
def test_members_together_are_members_alone(make: Callable[..., PrototypeModel], length: int, name: str) -> None:
    models = [make(name, seed) for seed in range(3)]
    x = torch.randint(LEVELS, (3, 4, length), generator=torch.Generator().manual_seed(0))
    together = stack_models(models, "loop")
    alone = torch.cat([model(rows[None]) for model, rows in zip(models, x, strict=True)])

    torch.testing.assert_close(together(x), alone)
    assert all(len(parameter) == 3 for parameter in together.parameters())  # an optimiser gives each a rate
    torch.autograd.backward(together(x)[1].sum())
    for parameter in together.parameters():
        assert parameter.grad is not None
        assert not parameter.grad[[0, 2]].any()
        assert parameter.grad[1].any()


def test_only_prototypes_and_the_scale_are_trained() -> None:
    assert {name: tuple(of.shape) for name, of in model_of("slay").named_parameters()} == {
        "weight": (1, CLASSES, DIM),
        "alpha": (1, 1),
    }


def test_prototypes_begin_as_asked() -> None:
    given = {"model_dim": 400, "num_heads": 1, "max_length": 400, "bias": False}
    for std, expected in ((None, 1 / math.sqrt(3 * 400)), (0.5, 0.5)):
        model = PrototypeModel(MECHANISMS["softmax"], given, 50, LEVELS, torch.Generator().manual_seed(0), std)
        assert model.weight.std().item() == pytest.approx(expected, rel=0.02)


def test_inversion_negates_prototypes_and_is_undone() -> None:
    model, x = model_of("softmax"), tokens(1, 7)
    before = model(x)
    with model.inverted():
        torch.testing.assert_close(model(x), -before)
    torch.testing.assert_close(model(x), before)


def test_facts_are_the_growth_of_the_mean_length_and_alpha() -> None:
    model = stack_models([model_of("yat", 0), model_of("yat", 1)], "loop")
    with torch.no_grad():
        model.weight[1] *= 3
        model.alpha[0] = 2.5
    first, second = model.facts()

    assert (first["alpha"], second["alpha"]) == (2.5, 1.0)
    assert first["growth"] == pytest.approx(0)
    assert second["growth"] == pytest.approx(2)


@pytest.mark.parametrize("name", ["gla", "lstm", "local", "cosformer", "retention", "rewa-geometric"])
def test_what_has_no_fixed_kernel_is_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=f"mechanism '{name}' has no fixed kernel of a query and a key.*such as softmax"
    ):
        model_of(name)


def test_heads_are_refused() -> None:
    with pytest.raises(UsageError, match="num_heads is 2; allowed with prototypes: 1"):
        model_of("softmax", num_heads=2)


@pytest.mark.parametrize("length", [8, 9])
def test_a_bag_is_the_weighted_sum_of_its_features(length: int) -> None:
    model = bag_model_of("softmax")
    bags = torch.zeros(1, 2, length, dtype=torch.int64)
    bags[0, 0, :3], bags[0, 0, 4:7] = torch.tensor([7, 2, 9]), torch.tensor([255, 51, 102])
    table = model.embedding[0]
    expected = torch.stack([table[7] + 0.2 * table[2] + 0.4 * table[9], torch.zeros(DIM, dtype=torch.float64)])

    torch.testing.assert_close(model.vectors(bags)[0], expected)
    torch.testing.assert_close(model(bags)[0, :, 0], scale(model) * expected @ model.weight[0].T / math.sqrt(DIM))


def test_sizes_tell_prototypes_from_vectors_of_features() -> None:
    own = CLASSES * DIM + 1

    assert model_of("slay").size(DIM) == (own, own, 0)
    assert bag_model_of("slay").size(8) == (own + LEVELS * DIM, own, 0)


def test_a_suite_of_another_width_is_refused(make_cell: Callable[..., object]) -> None:
    with pytest.raises(
        UsageError, match=r"model_dim of suite 'paper.extra' is 64; allowed for task 'digits': 784, .*'digits'"
    ):
        make_cell("digits")


@pytest.mark.parametrize("name", KERNELS)
def test_vectors_do_not_see_each_other(name: str) -> None:
    check_alone(model_of(name), tokens(1, 6))
    check_alone(model_of(name), tokens(1, 1))
    check_alone(bag_model_of(name), torch.randint(LEVELS, (1, 6, 8), generator=torch.Generator().manual_seed(0)))


def test_a_kernel_that_sees_its_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("softmax")

    def centred(kernel: object, x: Tensor, w: Tensor) -> Tensor:
        values = kernel_values(kernel, x, w)  # type: ignore[arg-type]
        return values - values.mean(0)

    monkeypatch.setattr(prototypes, "kernel_values", centred)
    with pytest.raises(ContractError, match="lets the vectors of a batch see each other"):
        check_alone(model, tokens(1, 6))
    with pytest.raises(UsageError, match="has no fixed kernel"):
        model_of("softmax")
