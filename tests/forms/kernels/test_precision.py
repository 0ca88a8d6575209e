"""Rounding errors of products of parts, emulated: on a GPU tensor cores round operands as here, and add in float32."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from synthbench.forms import kernels
from synthbench.forms.kernels import _slay, _yat_spherical, self_test
from tests.forms.kernels.inputs import draw, make
from tests.tensors import value_and_gradients


def leading(x: Tensor, digits: int) -> Tensor:
    """A float32's first binary digits, of 24: TF32 has 11, ten of them stored, and bfloat16 8."""
    first: Tensor = (x.view(torch.int32) & -(2 ** (24 - digits))).view(torch.float32)
    return first


def parts(x: Tensor, digits: int, count: int) -> list[Tensor]:
    found = []
    for _ in range(count):
        found.append(leading(x, digits))
        x = x - found[-1]
    return found


def multiply(x: Tensor, y: Tensor, digits: int, count: int) -> Tensor:
    """The products of so many parts of each, the smallest first, but for those beyond the last part's digits."""
    x_parts, y_parts = parts(x, digits, count), parts(y, digits, count)
    pairs = [(i, j) for i in range(count) for j in range(count) if i + j < count]
    products = [x_parts[i] @ y_parts[j] for i, j in sorted(pairs, key=sum, reverse=True)]
    return torch.stack(products).cumsum(0)[-1]


@pytest.mark.parametrize(
    ("digits", "count", "least", "most"),
    [(11, 1, 1e-4, 2e-3), (11, 2, 1e-8, 2**-19), (8, 3, 0.0, 2**-21), (8, 2, 1e-6, 2**-14)],
    ids=["tf32", "three products of tf32", "six products of bfloat16", "three products of bfloat16"],
)
def test_products_of_parts_miss_this_much_of_scores(digits: int, count: int, least: float, most: float) -> None:
    """Of positive features, of which float32's own products miss 2^-21 or so."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(256, 64, generator=generator).exp() for _ in "xy")
    true = x.double() @ y.double().mT

    missed = ((multiply(x, y.mT, digits, count).double() - true) / true).abs().max()

    assert least <= missed <= most


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("name", "module"), [("slay", _slay), ("yat-spherical", _yat_spherical)], ids=["slay", "yat-spherical"]
)
def test_kernels_that_multiply_three_parts_miss_about_what_float32_does(
    name: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "runs_on", lambda _device: True)
    monkeypatch.setattr(self_test, "passes", lambda *_: True)
    monkeypatch.setenv(kernels.SWITCH, "always")
    unit, case = make(name, 32), draw(70, 32, 32)
    seen: list[list[Tensor]] = []
    for precision in ("ieee", "bf16x6"):
        monkeypatch.setattr(module, "precision", lambda _dtype, precision=precision: precision)
        seen.append(value_and_gradients(unit.attend, case))
    monkeypatch.setenv(kernels.SWITCH, "off")
    expected = value_and_gradients(unit.double().attend, [x.double() for x in case])

    assert not torch.equal(seen[0][0], seen[1][0])
    for by_float32, by_parts, true in zip(*seen, expected, strict=True):
        missed = [float((found.double() - true).abs().max()) for found in (by_float32, by_parts)]
        assert missed[1] <= max(3 * missed[0], 2**-21 * float(true.abs().max()))
