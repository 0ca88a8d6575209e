"""Self-tests of kernels: right ones pass in Triton's interpreter, ones with a fault of any kind are not used."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from synthbench.forms import kernels, scores
from synthbench.forms.kernels import self_test
from synthbench.mechanisms.slay.slay import Slay
from synthbench.mechanisms.yat_spherical import YatSpherical
from synthbench.training.ensemble import stack_modules

pytest.importorskip("triton", reason="Triton is not installed: pip install -e '.[triton]'")

from synthbench.forms.kernels import _slay, _yat_spherical
from tests.forms.kernels.inputs import draw, make


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let kernels run on the CPU, of which nothing has been tested or said yet; afterwards, TF32 is as it was."""
    monkeypatch.setattr(kernels, "runs_on", lambda _device: True)
    monkeypatch.setattr(self_test, "_results", {})
    self_test.warn_once.cache_clear()
    before = torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def right_yat(epsilon: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A stand-in for the kernel: PyTorch's form, at once."""
    return scores.attend(YatSpherical(epsilon=epsilon, generator=torch.Generator()).scores, "sum", q, k, v)


def use(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Tensor]) -> list[int]:
    """Put a changed form in place of the kernel of Yat; the lengths that it is called with."""
    lengths: list[int] = []

    def kernel(epsilon: float, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        lengths.append(q.shape[-2])
        return change(right_yat(epsilon, q, k, v), q, k, v)

    monkeypatch.setattr(_yat_spherical, "attend", kernel)
    return lengths


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("name", "dtype", "head_dim"),
    [
        ("slay", torch.float32, 16),
        ("slay", torch.bfloat16, 32),
        ("yat-spherical", torch.float16, 16),
        ("yat-spherical", torch.bfloat16, 3),
    ],
    ids=str,
)
def test_kernels_pass_their_tests(name: str, dtype: torch.dtype, head_dim: int) -> None:
    unit = make(name, head_dim).to(dtype)

    assert unit.gpu_kernel(*(x.to(dtype) for x in draw(5, head_dim, head_dim))) is not None
    assert list(self_test._results.values()) == [True]


FAULTS: dict[str, Callable[..., Tensor]] = {
    "outputs differ": lambda out, *_: 1.01 * out,
    "outputs differ .* by nan": lambda out, *_: torch.where(out == out.max(), torch.nan, out),
    "outputs differ from float64's by inf": lambda out, *_: torch.where(out == out.max(), torch.inf, out),
    "gradients of q differ": lambda out, q, *_: out + 0.1 * (q - q.detach()),
    "gradients of k differ": lambda out, _q, k, _v: out + 0.1 * (k - k.detach()),
    "gradients of v differ": lambda out, _q, _k, v: out + 0.1 * (v - v.detach()),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_wrong_kernel_is_not_used_and_one_line_says_what_is_wrong(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.SWITCH, "always")
    use(monkeypatch, FAULTS[said])
    unit, case = make("yat-spherical"), draw(20)

    with pytest.warns(RuntimeWarning, match=f"kernel of yat-spherical in heads of 16 in float32: {said}") as warned:
        outs = [unit.attend(*case) for _ in range(2)]

    assert len(warned) == 1
    assert all(torch.equal(out, unit.attend_by_torch(*case)) for out in outs)


def test_an_error_of_slay_that_only_states_make_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(constants: _slay.Constants, q: Tensor, k: Tensor, v: Tensor, *, segment: int, **guard: Any) -> Tensor:
        out = make("slay").attend_by_torch(q, k, v)
        assert constants.anchors.shape == (16, 3)
        assert guard == {"guard": "add", "delta": 1e-6}
        return torch.cat([out[..., :segment, :], 1.01 * out[..., segment:, :]], dim=-2)

    monkeypatch.setattr(_slay, "attend", kernel)

    with pytest.warns(RuntimeWarning, match="kernel of slay in heads of 16 in float32: outputs differ"):
        assert make("slay").gpu_kernel(*draw(5)) is None


def test_a_kernel_that_cannot_be_compiled_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = RuntimeError("PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr: ...")
    use(monkeypatch, Mock(side_effect=problem))

    with pytest.warns(RuntimeWarning, match="RuntimeError: PTXAS error: Internal Triton PTX codegen error$"):
        assert make("yat-spherical").gpu_kernel(*draw(20)) is None


def test_full_memory_says_nothing_about_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Mock(side_effect=torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        make("yat-spherical").gpu_kernel(*draw(20))

    use(monkeypatch, lambda out, *_: out)
    assert make("yat-spherical").gpu_kernel(*draw(20)) is not None


def test_each_dtype_width_and_option_is_tested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = use(monkeypatch, lambda out, *_: out)

    for _ in range(2):
        for unit in (make("yat-spherical"), make("yat-spherical", epsilon=0.5)):
            unit.gpu_kernel(*draw(20))
            unit.gpu_kernel(*draw(30))
            unit.gpu_kernel(*(x.half() for x in draw(20)))
        make("yat-spherical", 24).gpu_kernel(*draw(20, 24, 24))

    assert lengths == [self_test.LENGTH] * 5
    torch.backends.cuda.matmul.allow_tf32 = True
    make("yat-spherical").gpu_kernel(*draw(20))
    assert len(lengths) == 6


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, lambda: torch.device("meta")],
    ids=["no_grad", "inference_mode", "default device"],
)
def test_a_test_is_the_same_in_every_mode(mode: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, unit, case = use(monkeypatch, lambda out, *_: out), make("yat-spherical"), draw(20)
    before = torch.get_rng_state()

    with mode():
        assert unit.gpu_kernel(*case) is not None

    assert lengths
    assert torch.equal(torch.get_rng_state(), before)


def test_a_test_has_tensors_of_one_run_where_those_of_several_are_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Mock(side_effect=lambda _constants, *qkv, **_options: make("slay").attend_by_torch(*qkv))
    monkeypatch.setattr(_slay, "attend", kernel)
    unit: Any = stack_modules([make("slay"), make("slay")], activation_axes=5)

    assert unit.gpu_kernel(*draw(20, batch=(2, 1))) is not None
    assert [call.args[0].anchors.shape for call in kernel.mock_calls] == [(16, 3)]
    assert unit.anchors.shape == (2, 1, 1, 16, 3)


def test_nothing_is_tested_while_a_graph_is_captured_but_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test.OwnKernel, "failure", lambda _test: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    test = self_test.OwnKernel(Slay, (), 16, 16, torch.device("cuda"), torch.float32, is_tf32=False)

    assert not self_test.passes(test)

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert self_test.passes(test)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert self_test.passes(test)


def test_errors_of_tf32_are_allowed_where_it_is_and_those_of_autocast_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda out, *_: (1 + 2**-11) * out)
    torch.backends.cuda.matmul.allow_tf32 = True
    assert make("yat-spherical").gpu_kernel(*draw(20)) is not None

    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(RuntimeWarning, match="outputs differ"):
        assert make("yat-spherical").gpu_kernel(*draw(20)) is None
