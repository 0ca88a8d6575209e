from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from synthbench.forms import linear
from synthbench.forms.linear import Guard

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from synthbench.forms.kernels import _linear as kernel

Draw = Callable[..., tuple[Tensor, Tensor, Tensor]]


def compare(q: Tensor, k: Tensor, v: Tensor, guard: Guard, delta: float, segment: int | None) -> None:
    expected = linear.recurrent((q.double(),), (k.double(),), v.double(), guard=guard, delta=delta)

    out = kernel.forward((q,), (k,), v, guard=guard, delta=delta, segment=segment)

    torch.testing.assert_close(out, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("length", "segment"), [(1, None), (64, None), (129, None), (63, 64), (65, 64), (128, 64), (200, 64)]
)
def test_the_kernel_computes_the_recurrent_form(draw: Draw, length: int, segment: int | None) -> None:
    q, k, v = draw(length)

    compare(q.abs(), k.abs(), v, "add", 1e-6, segment)


@pytest.mark.parametrize(("num_features", "value_dim"), [(5, 3), (48, 20), (100, 17)])
def test_widths_need_not_be_powers_of_two(draw: Draw, num_features: int, value_dim: int) -> None:
    q, k, v = draw(70, num_features, value_dim)

    compare(q.abs(), k.abs(), v, "add", 1e-6, 64)


@pytest.mark.parametrize("guard", ["add", "clamp"])
def test_guards_are_those_of_the_other_forms(draw: Draw, guard: Guard) -> None:
    q, k, v = draw(70, 4)

    # A delta that matters, and denominators of either sign, which the guard "add" must not bring near zero.
    compare(q.abs() if guard == "add" else q, k.abs(), v, guard, 3.0, 64)


def test_memory_need_not_be_contiguous_and_a_factor_may_be_shared_by_the_batch(draw: Draw) -> None:
    q, k, v = draw(65, batch=(2,))
    shared = k.abs()[:1, :1]

    out = kernel.forward((q.abs().mT.contiguous().mT,), (shared,), v[..., ::2], guard="add", delta=1e-6)

    expected = linear.gram((q.abs(),), (shared.expand_as(k),), v[..., ::2], guard="add", delta=1e-6)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
