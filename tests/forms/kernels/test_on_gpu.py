"""Kernels as a GPU runs them, not Triton's interpreter."""

from collections.abc import Callable
from copy import deepcopy
from itertools import product
from typing import Any

import pytest
import torch

from synthbench.forms import kernels
from synthbench.forms.kernels import DTYPES, self_test
from synthbench.mechanisms import MECHANISMS
from tests.mechanisms.loops import built

Need = Callable[[str, bool, str], None]


CASES = [
    *product([("slay", {}), ("slay", {"P": 16}), ("yat-spherical", {})], DTYPES),
    *product(
        [("slay", {"model_dim": 32, "P": 16}), ("slay", {"model_dim": 128, "P": 16})], [torch.float32, torch.float16]
    ),
    (("slay", {"model_dim": 32}), torch.float16),
    *product([("slay", {"model_dim": 128})], DTYPES),
    *product(
        [("yat-spherical", {"model_dim": 32}), ("yat-spherical", {"model_dim": 128})], [torch.float32, torch.bfloat16]
    ),
]
"""In two heads of 32, or of half of the width that a case names."""


@pytest.mark.gpu
@pytest.mark.parametrize("length", [1, 65, 200, 3000])
@pytest.mark.parametrize(("name", "options", "dtype"), [(*case, dtype) for case, dtype in CASES], ids=str)
def test_a_kernel_computes_what_float64_does(
    need: Need, name: str, options: dict[str, Any], length: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")
    need("triton", kernels.fits(torch.device("cuda")), "this device does not run the kernels")
    monkeypatch.setattr(kernels, "runs_on", lambda _device: True)  # by any assembler, good or not
    monkeypatch.setattr(self_test, "passes", lambda *_: True)  # which would refuse what is tested here
    generator = torch.Generator().manual_seed(length)
    unit: Any = built(MECHANISMS[name], **{"model_dim": 64, **options}).to("cuda", dtype)
    q, k, v = (torch.randn(1, 2, length, unit.head_dim, generator=generator).to("cuda", dtype) for _ in "qkv")
    kernel = unit.gpu_kernel(q, k, v)
    assert kernel is not None

    exact = deepcopy(unit).double().attend_by_torch
    assert self_test.deviation(kernel, unit.attend_by_torch, exact, (q, k, v)) is None
