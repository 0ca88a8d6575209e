from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu
from torch.utils._python_dispatch import TorchDispatchMode

from synthbench.forms import linear
from synthbench.forms.linear import Guard
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import FeatureAttention
from synthbench.mechanisms.linear import Linear
from tests.tensors import mix, normal, value_and_gradients

FAST = [linear.gram, linear.chunked, linear.at_once, linear.attend]
GUARDS: list[Guard] = ["add", "clamp"]
WIDTHS = {1: (5,), 2: (3, 4), 3: (4, 2, 3)}


def draw(num_factors: int, length: int) -> list[Tensor]:
    """Factors of queries, as many of keys, and values."""
    widths = 2 * WIDTHS[num_factors]
    factors = [normal(2, 3, length, width, seed=seed).sigmoid() + 0.1 for seed, width in enumerate(widths)]
    return [*factors, normal(2, 3, length, 6, seed=len(widths))]


def of_all(form: Callable[..., Tensor], guard: Guard, delta: float) -> Callable[..., Tensor]:
    """A form as a function of what ``draw`` returns."""

    def attend(*inputs: Tensor) -> Tensor:
        half = len(inputs) // 2
        return form(inputs[:half], inputs[half:-1], inputs[-1], guard=guard, delta=delta)

    return attend


@pytest.mark.parametrize(("guard", "delta"), [("add", 1e-6), ("clamp", 2.0)])  # some denominators lie below 2
@pytest.mark.parametrize("num_factors", WIDTHS)
@pytest.mark.parametrize("length", [1, 64, 131])
def test_fast_forms_equal_the_recurrent_form_and_so_do_their_gradients(
    guard: Guard, num_factors: int, length: int, delta: float
) -> None:
    case = draw(num_factors, length)

    expected = value_and_gradients(of_all(linear.recurrent, guard, delta), case)

    for form in FAST:
        found = value_and_gradients(of_all(form, guard, delta), case)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", [*FAST, linear.recurrent])
def test_float32_loses_only_rounding(form: Callable[..., Tensor]) -> None:
    case = draw(3, 131)
    expected = value_and_gradients(of_all(linear.recurrent, "add", 1e-6), case)

    found = value_and_gradients(of_all(form, "add", 1e-6), [x.float() for x in case])

    torch.testing.assert_close(found, [x.float() for x in expected], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("guard", GUARDS)
def test_the_recurrent_form_computes_the_definition(guard: Guard) -> None:
    *factors, v = case = draw(2, 70)
    kernel = torch.einsum("...ia,...ib,...ja,...jb->...ij", *factors)

    out = of_all(linear.recurrent, guard, 2.0)(*case)

    torch.testing.assert_close(out, mix(kernel, v, guard, 2.0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", [*FAST, linear.recurrent])
def test_a_factor_may_be_shared_by_the_batch(form: Callable[..., Tensor]) -> None:
    query, other_query, key, other_key, v = draw(2, 70)
    shared_query, shared_key = other_query[0, 0], other_key[0, 0]

    attend = of_all(form, "add", 1e-6)
    expected = attend(query, shared_query.expand_as(other_query), key, shared_key.expand_as(other_key), v)
    torch.testing.assert_close(attend(query, shared_query, key, shared_key, v), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("guard", "expected"), [("clamp", 12.0), ("add", -2.4)])
def test_guards_keep_the_denominator_from_zero_and_clamp_makes_a_negative_one_delta(
    guard: Guard, expected: float
) -> None:
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
    chosen = []
    for form in (linear.gram, linear.chunked, linear.at_once):

        def choose(*given: torch.Tensor, name: str = form.__name__, **_guard: object) -> torch.Tensor:
            chosen.append(name)
            return given[-1]

        monkeypatch.setattr(linear, form.__name__, choose)

    linear.attend(features, features, v, guard="add", delta=1e-6)

    assert chosen == [name]


class Launches(TorchDispatchMode):
    """Counts the operations that would launch a kernel on a GPU."""

    OTHERS: ClassVar = {"_unsafe_view", "promote_types"}
    """They launch none either, although they return no view by their signature."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func._schema.returns[0].alias_info
        is_view = returned is not None and not returned.is_write
        name = func._schema.name.removeprefix("aten::")
        if not is_view and name not in self.OTHERS:
            self.count += 2 if name == "constant_pad_nd" else 1  # which fills, then copies
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "length"), [("linear", 16_384), ("performer", 4096)])
def test_a_training_step_takes_at_most_60_launches_on_a_gpu(name: str, length: int) -> None:
    """By the form for a device that is no CPU; the device "meta" computes nothing."""
    unit = MECHANISMS[name](model_dim=256, num_heads=8).to("meta")
    assert isinstance(unit, FeatureAttention)
    q, k, v = (torch.empty(1, 8, length, 32, device="meta", requires_grad=True) for _ in "qkv")

    with Launches() as launches:  # type: ignore[no-untyped-call]
        out = unit.attend(q, k, v)
        torch.autograd.grad(out, (q, k, v), torch.empty_like(out))

    assert 20 <= launches.count <= 60


def test_linear_attention_is_elu_plus_one() -> None:
    q, k, v = (normal(2, 4, 40, 16, seed=seed) for seed in range(3))
    kernel = (elu(q) + 1) @ (elu(k) + 1).mT

    out = Linear().attend(q, k, v)

    torch.testing.assert_close(out, mix(kernel, v))


@pytest.mark.parametrize("form", [*FAST, linear.recurrent])
def test_sums_over_tokens_are_float32_at_least(form: Callable[..., Tensor]) -> None:
    ones = (torch.ones(1, 600, 5, dtype=torch.bfloat16),)
    v = torch.linspace(-1, 1, 600).view(1, -1, 1).bfloat16()

    out = form(ones, ones, v, guard="add", delta=1e-6)

    # Alike features make means of what came before; a sum of ones in bfloat16 would stop at 256.
    expected = v.float().cumsum(1) / torch.arange(1, 601).view(1, -1, 1)
    torch.testing.assert_close(out, expected.bfloat16(), rtol=0.02, atol=1e-3)
