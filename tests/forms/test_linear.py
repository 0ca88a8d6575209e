"""Linear attention in every form, against its definition and each other."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from synthbench.forms import linear, streaming
from synthbench.forms.linear import Factors, Guard
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.slay.slay import Slay
from tests.mechanisms.loops import built
from tests.runner.test_operations import Operations
from tests.tensors import mix, normal, value_and_gradients, with_gradients

Form = Callable[..., Tensor]
WIDTHS = {1: (5,), 2: (3, 4), 3: (4, 2, 3)}
TRAINED = {"rewa-fourier"}
"""Features that read a parameter, which must get its gradient from them."""
STREAMED = ["linear", "slay", "cosformer", "rff", "performer-exp", *TRAINED]
"""One mechanism for each kind of features."""


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "CHUNK", 3)
    monkeypatch.setattr(streaming, "BLOCK", 6)


def streamed(query: Factors, key: Factors, v: Tensor, *, guard: Guard, delta: float) -> Tensor:
    """The streamed form, for whose queries and keys the factors themselves stand, one beside the other."""
    widths = [factor.shape[-1] for factor in query]
    shape = (*v.shape[:-1], -1)
    q, k = (torch.cat([factor.expand(shape) for factor in of], dim=-1) for of in (query, key))
    return streaming.streamed(lambda x, _side, _first: x.split(widths, dim=-1), q, k, v, guard=guard, delta=delta)


FORMS: list[Form] = [linear.recurrent, linear.gram, linear.chunked, linear.at_once, linear.attend, streamed]
of_all_forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
pytestmark = pytest.mark.usefixtures("small_blocks")


def draw(num_factors: int, length: int) -> list[Tensor]:
    """Factors of queries, as many of keys, and values."""
    widths = 2 * WIDTHS[num_factors]
    factors = [normal(2, 3, length, width, seed=seed).sigmoid() + 0.1 for seed, width in enumerate(widths)]
    return [*factors, normal(2, 3, length, 6, seed=len(widths))]


def of_all(form: Form, guard: Guard = "add", delta: float = 1e-6) -> Form:
    """A form as a function of what ``draw`` returns."""

    def attend(*inputs: Tensor) -> Tensor:
        half = len(inputs) // 2
        return form(inputs[:half], inputs[half:-1], inputs[-1], guard=guard, delta=delta)

    return attend


def definition(query: Sequence[Tensor], key: Sequence[Tensor], v: Tensor, *, guard: Guard, delta: float) -> Tensor:
    """Every pair's kernel, as the product of the factors' inner products."""
    return mix(prod((a @ b.mT for a, b in zip(query, key, strict=True)), start=torch.ones(())), v, guard, delta)


@pytest.mark.parametrize(("guard", "delta"), [("add", 1e-6), ("clamp", 2.0)])  # some denominators lie below 2
@pytest.mark.parametrize("num_factors", WIDTHS)
@pytest.mark.parametrize("length", [1, 64, 131])
def test_every_form_and_its_gradients_are_as_defined(guard: Guard, num_factors: int, length: int, delta: float) -> None:
    case = draw(num_factors, length)

    expected = value_and_gradients(of_all(definition, guard, delta), case)

    for form in FORMS:
        found = value_and_gradients(of_all(form, guard, delta), case)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@of_all_forms
def test_float32_loses_only_rounding(form: Form) -> None:
    case = draw(3, 131)
    expected = value_and_gradients(of_all(linear.recurrent), case)

    found = value_and_gradients(of_all(form), [x.float() for x in case])

    torch.testing.assert_close(found, [x.float() for x in expected], rtol=2e-5, atol=2e-5)


@of_all_forms
def test_a_factor_may_be_shared_by_the_batch(form: Form) -> None:
    query, other_query, key, other_key, v = draw(2, 70)
    shared_query, shared_key = other_query[0, 0], other_key[0, 0]

    attend = of_all(form)
    expected = attend(query, shared_query.expand_as(other_query), key, shared_key.expand_as(other_key), v)
    torch.testing.assert_close(attend(query, shared_query, key, shared_key, v), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("guard", "expected"), [("clamp", 12.0), ("add", -2.4)])
def test_guards_keep_denominators_from_zero_and_clamp_makes_negative_ones_delta(guard: Guard, expected: float) -> None:
    zeros, v = (torch.zeros(3, 2),), torch.ones(3, 2)

    assert (linear.gram(zeros, zeros, v, guard=guard, delta=1e-6) == 0).all()
    assert linear.normalise(torch.tensor([6.0, -3.0]), guard, 0.5).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("device", "batch", "num_features", "length", "name"),
    [
        ("cpu", 1, 16, 100, "gram"),
        ("cpu", 1, 16, 101, "chunked"),
        ("meta", 1, 16, 512, "gram"),
        ("meta", 1, 16, 513, "at_once"),
        # Of 2^28 numbers, the most that a tensor may have: 2^20 chunks with 128 features and two columns each.
        ("meta", 2**10, 128, 2**16, "at_once"),
        ("meta", 2**10, 129, 2**16, "chunked"),
    ],
)
def test_each_device_attends_by_the_form_that_is_fastest_and_fits(
    device: str, batch: int, num_features: int, length: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device "meta" stands for a GPU."""
    zero = torch.zeros((), device=device)
    features, v = (zero.expand(batch, length, num_features),), zero.expand(batch, length, 1)
    forms = {form: Mock(return_value=v) for form in ("gram", "chunked", "at_once")}
    for form, called in forms.items():
        monkeypatch.setattr(linear, form, called)

    linear.attend(features, features, v, guard="add", delta=1e-6)

    assert [form for form, called in forms.items() for _ in called.mock_calls] == [name]


@pytest.mark.parametrize(("name", "length"), [("linear", 16_384), ("performer", 4096)])
def test_a_training_step_takes_at_most_60_launches_on_a_gpu(name: str, length: int) -> None:
    """By the form for a device that is no CPU; the device "meta" computes nothing."""
    unit: Any = MECHANISMS[name](model_dim=256, num_heads=8).to("meta")
    q, k, v = (torch.empty(1, 8, length, 32, device="meta", requires_grad=True) for _ in "qkv")

    with Operations() as launches:
        out = unit.attend(q, k, v)
        torch.autograd.grad(out, (q, k, v), torch.empty_like(out))

    assert 20 <= launches.counts.total() <= 60


@of_all_forms
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_over_tokens_are_float32_at_least(form: Form, dtype: torch.dtype) -> None:
    ones = torch.ones(1, 600, 5, dtype=dtype, requires_grad=True)
    v = torch.linspace(-1, 1, 600).view(1, -1, 1).to(dtype)

    out = of_all(form)(ones, ones, v)

    # Alike features make means of what came before; a sum of ones in bfloat16 would stop at 256.
    expected = v.float().cumsum(1) / torch.arange(1, 601).view(1, -1, 1)
    rtol, atol = (None, None) if form is streamed else (0.02, 1e-3)
    torch.testing.assert_close(out, expected.to(dtype), rtol=rtol, atol=atol)
    assert all(x.dtype == dtype for x in torch.autograd.grad(out.sum(), ones))


@pytest.mark.parametrize("name", STREAMED)
def test_long_sequences_are_streamed_where_features_are_frozen_and_nothing_changes(name: str) -> None:
    mechanism: Any = built(MECHANISMS[name], model_dim=16, max_length=32)
    case = q, k, v = [normal(2, 2, 20, 8, seed=seed).requires_grad_() for seed in range(3)]

    streamed = mechanism.attend(q, k, v)

    factors = mechanism.factors(q, "query"), mechanism.factors(k, "key")
    expected = linear.gram(*factors, v, guard=mechanism.guard, delta=mechanism.delta)
    assert ("_Streamed" in type(streamed.grad_fn).__name__) == (name not in TRAINED)
    # Relative to the largest: denominators that cancel to nearly nothing make some gradients large.
    for own, other in zip(with_gradients(streamed, case), with_gradients(expected, case), strict=True):
        assert (own - other).abs().max() <= 1e-9 * other.abs().max()


def test_what_a_mechanism_keeps_may_be_replaced_before_the_backward_pass() -> None:
    mechanism, other = (built(Slay, seed, model_dim=16) for seed in range(2))
    case = [normal(1, 2, 20, 8, seed=seed).requires_grad_() for seed in range(3)]
    expected = with_gradients(mechanism.attend(*case), case)

    out = mechanism.attend(*case)
    for name, value in other.named_buffers():
        setattr(mechanism, name, value)

    torch.testing.assert_close(with_gradients(out, case), expected)
