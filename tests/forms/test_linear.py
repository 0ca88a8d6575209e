from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu
from torch.utils._python_dispatch import TorchDispatchMode

from synthbench.forms import linear
from synthbench.forms.linear import Factors, Guard
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import FeatureAttention
from synthbench.mechanisms.linear import Linear
from tests.tensors import mix, normal, with_gradients

FAST = [linear.gram, linear.chunked, linear.at_once, linear.attend]
GUARDS: list[Guard] = ["add", "clamp"]
WIDTHS = {1: (5,), 2: (3, 4), 3: (4, 2, 3)}


def draw(num_factors: int, length: int, batch: tuple[int, ...] = (2, 3)) -> tuple[Factors, Factors, Tensor]:
    generator = torch.Generator().manual_seed(length)
    shapes = [(*batch, length, width) for width in WIDTHS[num_factors]]
    query, key = (
        tuple(torch.rand(shape, generator=generator, dtype=torch.float64).add(0.1).requires_grad_() for shape in shapes)
        for _ in range(2)
    )
    v = torch.randn(*batch, length, 6, generator=generator, dtype=torch.float64).requires_grad_()
    return query, key, v


def run(form: Callable[..., Tensor], case: tuple[Factors, Factors, Tensor], guard: Guard, delta: float) -> list[Tensor]:
    """The output, then its gradients by every input."""
    query, key, v = case
    out = form(query, key, v, guard=guard, delta=delta)
    return with_gradients(out, [*query, *key, v])


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("num_factors", WIDTHS)
@pytest.mark.parametrize("length", [1, 64, 65, 131])
def test_fast_forms_equal_the_recurrent_form_and_so_do_their_gradients(
    guard: Guard, num_factors: int, length: int
) -> None:
    case = draw(num_factors, length)

    expected = run(linear.recurrent, case, guard, 1e-6)

    for form in FAST:
        torch.testing.assert_close(run(form, case, guard, 1e-6), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", [*FAST, linear.recurrent])
def test_float32_loses_only_rounding(form: Callable[..., Tensor]) -> None:
    double = query, key, v = draw(3, 131)
    single = (
        tuple(factor.detach().float().requires_grad_() for factor in query),
        tuple(factor.detach().float().requires_grad_() for factor in key),
        v.detach().float().requires_grad_(),
    )

    expected = [tensor.float() for tensor in run(linear.recurrent, double, "add", 1e-6)]

    torch.testing.assert_close(run(form, single, "add", 1e-6), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("form", [*FAST, linear.recurrent])
@pytest.mark.parametrize("guard", GUARDS)
def test_forms_compute_the_definition(form: Callable[..., Tensor], guard: Guard) -> None:
    query, key, v = draw(2, 70)
    kernel = torch.einsum("...ia,...ib,...ja,...jb->...ij", query[0], query[1], key[0], key[1])

    # A delta that matters, so that the two guards differ.
    out = form(query, key, v, guard=guard, delta=2.0)

    torch.testing.assert_close(out, mix(kernel, v, guard, 2.0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", [*FAST, linear.recurrent])
def test_a_factor_may_be_shared_by_the_batch(form: Callable[..., Tensor]) -> None:
    query, key, v = draw(2, 70)
    shared_query, shared_key = query[1][0, 0], key[1][0, 0]

    out = form((query[0], shared_query), (key[0], shared_key), v, guard="add", delta=1e-6)
    expanded = (query[0], shared_query.expand_as(query[1])), (key[0], shared_key.expand_as(key[1]))

    torch.testing.assert_close(out, form(*expanded, v, guard="add", delta=1e-6), rtol=1e-10, atol=1e-10)


def test_guards_keep_the_denominator_from_zero() -> None:
    zeros, v = (torch.zeros(3, 2),), torch.ones(3, 2)

    for guard in GUARDS:
        assert (linear.gram(zeros, zeros, v, guard=guard, delta=1e-6) == 0).all()


def test_clamp_turns_a_negative_denominator_into_delta() -> None:
    sums = torch.tensor([[6.0, -3.0]])

    torch.testing.assert_close(linear.normalise(sums, "clamp", 0.5), torch.tensor([[12.0]]))
    torch.testing.assert_close(linear.normalise(sums, "add", 0.5), torch.tensor([[-2.4]]))


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


@pytest.mark.parametrize("name", ["linear", "performer"])
@pytest.mark.parametrize("length", [4096, 16_384])
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
