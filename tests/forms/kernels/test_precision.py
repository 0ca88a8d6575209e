"""Rounding errors of products of parts, as kernels multiply in Triton's interpreter."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from synthbench.forms import kernels
from synthbench.forms.kernels import _slay, _yat_spherical, self_test
from tests.forms.kernels.inputs import draw, make
from tests.tensors import value_and_gradients


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
