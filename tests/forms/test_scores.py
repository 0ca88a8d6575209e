"""Attention by scores of all pairs, in one piece and in blocks, and what makes weights of scores."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from synthbench.forms import scores
from synthbench.forms.scores import Normaliser
from synthbench.forms.squashing import softermax
from tests.tensors import normal, with_gradients

NORMALISERS: list[Normaliser] = ["softmax", "sum", "softermax"]
POWER = 2.0


def inner_squared(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.mT).square()


def draw(length: int) -> list[Tensor]:
    return [normal(2, 3, length, 4, seed=seed).requires_grad_() for seed in range(3)]


def run(form: Callable[..., Tensor], normaliser: Normaliser, inputs: list[Tensor]) -> list[Tensor]:
    return with_gradients(form(inner_squared, normaliser, *inputs, power=POWER), inputs)


@pytest.mark.parametrize("normaliser", NORMALISERS)
@pytest.mark.parametrize("length", [1, 8, 30])
def test_blocks_equal_one_piece(normaliser: Normaliser, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "BLOCK", 8)
    inputs = draw(length)

    expected = run(scores.dense, normaliser, inputs)

    torch.testing.assert_close(run(scores.blocked, normaliser, inputs), expected, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(scores.blocked(inner_squared, normaliser, *inputs, power=POWER), expected[0])


@pytest.mark.parametrize(("length", "is_blocked"), [(16, False), (17, True)])
def test_long_sequences_are_cut_into_blocks(length: int, *, is_blocked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "DENSE_MAX_LENGTH", 16)
    monkeypatch.setattr(scores, "BLOCK", 4)
    dot_products = Mock(side_effect=lambda q, k: q @ k.mT)

    scores.attend(dot_products, "softmax", *draw(length))

    assert max(call.args[0].shape[-2] for call in dot_products.mock_calls) == (4 if is_blocked else 16)


@pytest.mark.parametrize(("normaliser", "power"), [("sum", 1.0), ("softermax", 1.0), ("softermax", 3.0)])
def test_other_weights_are_powers_over_their_masked_sum_or_0_without_one(normaliser: Normaliser, power: float) -> None:
    values = torch.tensor([[4.0, 9.0, 9.0], [1.0, 3.0, 9.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    a, b, c = 4**power, 1, 3**power

    expected = [[a / (a + 1e-6), 0, 0], [b / (b + c + 1e-6), c / (b + c + 1e-6), 0], [0, 0, 0]]
    weights = scores.weights(values, normaliser, power=power)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("length", "size"), [(1025, 255), (4096, 64), (2**16, 32)])
def test_blocks_of_a_cpu_shrink_as_keys_grow(length: int, size: int) -> None:
    q = k = torch.empty(1, 8, length, 0)

    assert scores.block_size(q, k) == size
    assert scores.block_size(q.to("meta"), k.to("meta")) == scores.BLOCK


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("power", [0.25, 1.0, 8.0, 16.0])
def test_softermax_and_its_gradient_are_finite_in_float32(power: float, scale: float) -> None:
    scores = (scale * torch.tensor([0.0, 0.0, 1.0, 3.0])).requires_grad_()

    weights = softermax(scores, power, 1e-6)
    (gradient,) = torch.autograd.grad(weights.sin().sum(), scores)

    assert weights.isfinite().all()
    assert gradient.isfinite().all()
