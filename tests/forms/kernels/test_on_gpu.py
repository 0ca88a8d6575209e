"""Kernels as a GPU runs them, not Triton's interpreter."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.forms import kernels
from synthbench.mechanisms import MECHANISMS
from synthbench.mechanisms.base import FeatureAttention, ScoreAttention

Need = Callable[[str, bool, str], None]

ALLOWED = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
"""Of the largest value, or of 1."""


def make(name: str, head_dim: int = 32, **knobs: Any) -> FeatureAttention | ScoreAttention:
    unit = MECHANISMS[name](model_dim=2 * head_dim, num_heads=2, generator=torch.Generator().manual_seed(0), **knobs)
    assert isinstance(unit, FeatureAttention | ScoreAttention)
    return unit


def with_gradients(form: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    inputs = tuple(x.detach().requires_grad_() for x in inputs)
    out = form(*inputs)
    return [out.detach(), *torch.autograd.grad(out.double().sin().sum(), inputs)]


CASES = [
    *product([("slay", {}), ("slay", {"P": 16}), ("linear", {}), ("performer", {}), ("yat-spherical", {})], ALLOWED),
    # Where denominators of signed features are near 0, gradients leave the range of half precision.
    (("rff", {}), torch.float32),
    *product(
        [("slay", {"head_dim": 16, "P": 16}), ("slay", {"head_dim": 64, "P": 16})], [torch.float32, torch.float16]
    ),
    (("slay", {"head_dim": 16}), torch.float16),
    *product([("slay", {"head_dim": 64})], ALLOWED),
    *product(
        [("yat-spherical", {"head_dim": 16}), ("yat-spherical", {"head_dim": 64})], [torch.float32, torch.bfloat16]
    ),
]
"""In heads of 32, or of the width that a case names."""


@pytest.mark.gpu
@pytest.mark.parametrize("length", [1, 65, 200, 3000])
@pytest.mark.parametrize(("name", "knobs", "dtype"), [(*case, dtype) for case, dtype in CASES], ids=str)
def test_a_kernel_computes_what_float64_does(
    need: Need, name: str, knobs: dict[str, Any], length: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")
    need("triton", kernels.runs_on(torch.device("cuda")), "this device does not run the kernels")
    generator = torch.Generator().manual_seed(length)
    unit = make(name, **knobs).to("cuda", dtype)
    q, k, v = (torch.randn(1, 2, length, unit.head_dim, generator=generator).to("cuda", dtype) for _ in "qkv")
    kernel = unit.gpu_kernel(q, k, v)
    assert kernel is not None

    found = with_gradients(kernel, (q, k, v))

    monkeypatch.setenv(kernels.SWITCH, "off")
    by_torch = with_gradients(unit.attend, (q, k, v))
    expected = with_gradients(unit.double().attend, (q.double(), k.double(), v.double()))
    for own, torchs, true in zip(found, by_torch, expected, strict=True):
        assert own.isfinite().all()
        # Signed features have denominators near 0, where PyTorch's own form is as far off.
        missed_by_torch = float((torchs.double() - true).abs().max())
        allowed = max(ALLOWED[dtype] * float(true.abs().max().clamp(min=1)), 3 * missed_by_torch)
        assert float((own.double() - true).abs().max()) <= allowed
