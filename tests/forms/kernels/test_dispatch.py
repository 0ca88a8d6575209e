from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.errors import UnknownName
from synthbench.forms import kernels

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from synthbench.forms.kernels import _slay, _yat_spherical, self_test
from tests.forms.kernels.inputs import draw, make
from tests.tensors import value_and_gradients

WITH_KERNEL = ["slay", "yat-spherical"]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let kernels run on the CPU, which Triton's interpreter makes possible, at any length; list those that ran."""
    found: list[str] = []
    monkeypatch.setenv(kernels.SWITCH, "always")
    monkeypatch.setattr(kernels, "runs_on", lambda _device: True)
    monkeypatch.setattr(self_test, "passes", lambda *_: True)  # which has tests of its own

    def recorded(kernel: str, form: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def record(*inputs: object, **guard: object) -> Tensor:
            found.append(kernel)
            return form(*inputs, **guard)

        return record

    monkeypatch.setattr(_slay, "attend", recorded("slay", _slay.attend))
    monkeypatch.setattr(_yat_spherical, "attend", recorded("yat-spherical", _yat_spherical.attend))
    return found


@pytest.mark.parametrize("name", WITH_KERNEL)
@pytest.mark.parametrize(("length", "num_runs"), [(16, 0), (17, 1)])
def test_a_kernel_is_taken_where_it_saves_launches(
    runs: list[str], name: str, length: int, num_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(kernels.SWITCH)
    monkeypatch.setattr(kernels, "GPU_GRAM_MAX_LENGTH", 16)

    make(name).attend(*draw(length))

    assert runs == num_runs * [name]


@pytest.mark.usefixtures("runs")
def test_a_choice_of_kernels_that_there_is_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.SWITCH, "alwais")

    with pytest.raises(UnknownName, match="no choice of SYNTHBENCH_KERNELS called 'alwais'; did you mean 'always'"):
        make("slay").attend(*draw(5))


def test_buffers_may_be_replaced_before_the_backward_pass(runs: list[str]) -> None:
    unit, other, case = make("slay"), make("slay", epsilon=0.5), tuple(x.requires_grad_() for x in draw(20))
    expected = torch.autograd.grad(unit.attend(*case).sin().sum(), case)

    loss = unit.attend(*case).sin().sum()
    for name, value in other.named_buffers():
        setattr(unit, name, value + 1)

    torch.testing.assert_close(torch.autograd.grad(loss, case), expected)
    assert runs == ["slay"] * 2


@pytest.mark.parametrize("name", WITH_KERNEL)
@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: (q.double(), k.double(), v.double()),
        lambda q, k, v: (q[:0], k[:0], v[:0]),
        lambda q, k, v: (q[..., -3:, :], k, v),
    ],
    ids=["float64", "empty", "few queries"],
)
def test_what_a_kernel_does_not_take_runs_the_form_of_pytorch(
    runs: list[str], name: str, change: Callable[..., tuple[Tensor, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = change(*draw(20))
    unit = make(name).to(case[0].dtype)

    out = unit.attend(*case)

    assert not runs
    monkeypatch.setenv(kernels.SWITCH, "off")
    assert out.dtype == case[0].dtype
    assert torch.equal(out, unit.attend(*case))


@pytest.mark.end_to_end
@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(("name", "module"), [("slay", _slay), ("yat-spherical", _yat_spherical)], ids=WITH_KERNEL)
def test_three_parts_miss_what_float32_does(name: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding errors of products of parts."""
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


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("name", "options", "width", "dtype", "has_kernel"),
    [
        ("slay", {"P": 16}, 16, torch.float32, True),
        ("slay", {"P": 17}, 16, torch.float32, False),
        ("slay", {"R": 9, "D": 16}, 16, torch.float32, False),
        ("slay", {}, 16, torch.bfloat16, False),
        ("slay", {}, 32, torch.bfloat16, True),
        ("yat-spherical", {}, 64, torch.float32, True),
        ("yat-spherical", {}, 65, torch.float32, False),
        ("yat-spherical", {"normaliser": "softmax"}, 16, torch.float32, False),
    ],
)
def test_some_sizes_and_variants_have_no_kernel(
    name: str, options: dict[str, Any], width: int, dtype: torch.dtype, *, has_kernel: bool
) -> None:
    unit = make(name, width, **options).to(dtype)

    assert (unit.gpu_kernel(*(x.to(dtype) for x in draw(5, width, width))) is not None) == has_kernel


@pytest.mark.parametrize("name", WITH_KERNEL)
def test_a_cpu_runs_no_kernel(name: str) -> None:
    assert not kernels.runs_on(torch.device("cpu"))
    assert make(name).gpu_kernel(*draw(5)) is None


@pytest.mark.parametrize(
    ("triton", "shared_bytes", "runs"), [(True, 232_448, True), (True, 101_376, False), (False, 232_448, False)]
)
def test_kernels_fit_a_device(*, triton: bool, shared_bytes: int, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(shared_memory_per_block_optin=shared_bytes)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: properties)
    monkeypatch.setattr(kernels, "find_spec", lambda _name: object() if triton else None)

    assert kernels.fits(torch.device("cuda:0")) == runs


def test_a_kernel_is_not_launched_with_more_tiles_than_a_grid_has(runs: list[str]) -> None:
    longest, longer = (torch.zeros(()).expand(1, 2, kernels.MAX_LENGTH + more, 16) for more in (0, 1))

    assert make("yat-spherical").gpu_kernel(longest, longest, longest) is not None
    assert make("yat-spherical").gpu_kernel(longer, longer, longer) is None
    assert not runs
