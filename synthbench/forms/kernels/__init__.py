"""Triton kernels: fast paths on a CUDA device that compute what the PyTorch forms compute.

=================  =======================================  ================================================
mechanism          forward                                  backward
=================  =======================================  ================================================
``slay``           features made on chip, never in memory   made again on chip
``yat-spherical``  tiles of the exact kernel (``sum``)      tiles too
=================  =======================================  ================================================

There is a kernel where Triton is installed and a CUDA device has the shared memory for it (an H100 does). Also q, k and
v must be of one type, float32 or half as wide, of one length and not empty, with sizes within the limits below. A
mechanism takes it by itself where it saves launches, see :func:`saves_launches`: beyond the lengths of most tasks.
Everything else runs the PyTorch form. In the environment ``SYNTHBENCH_KERNELS=off`` keeps to that, and ``always`` takes
kernels at every length.

A kernel is right or not used, whatever the environment says. On compute capability 9 its assembler must be known to be
good (``_assembler``). On every device it must agree with float64 when it is first used (``self_test``). Otherwise
PyTorch's form runs, and one warning says why.

Sums are float32. Operands of products are what the inputs are: bfloat16; TF32 for float16, and for float32 where
``torch.backends.cuda.matmul.allow_tf32`` says so. Otherwise float32 in three parts of bfloat16, whose six products miss
no more than float32 does. All are taken by tensor cores.

Tested on a CPU: values and gradients under Triton's interpreter against float64, with the rounding of products
emulated. Everything compiles for compute capability 9.0; ``reports/bench/sm_90`` has registers, spilled bytes and
tensor-core instructions. On an H100 and an H200, by Triton 3.6: values and gradients against float64, at the sizes in
docs/benches.md. SLAY attends to 131,072 tokens of bfloat16 in 1.24 ms on an H100. The wrong sums seen there were
probably the fault of the assembler, ptxas 12.8. The limits that avoid them stay until a newer assembler has been tried
on such a device.
"""

import os
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from synthbench.errors import UnknownName
from synthbench.forms.kernels import self_test
from synthbench.forms.linear import GPU_GRAM_MAX_LENGTH
from synthbench.forms.own import own_form

Form = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From q, k and v, each [..., length, width], to the outputs."""

SWITCH = "SYNTHBENCH_KERNELS"
"""Environment variable: one of ``CHOICES``."""
CHOICES = ("auto", "off", "always")

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEAD_DIM = 64
"""Largest width of a query, key or value."""
MAX_FEATURES = 128
"""Largest number of exponential features."""
MAX_ANCHORS = 16
"""With 32, outputs were wrong at some sizes on an H200, see ``_slay.gradient_tiles``."""
MIN_SLAY_WIDTH_BFLOAT16 = 32
"""Narrower heads gave wrong gradients, or an illegal access, on an H100: width 16 with 16 anchors."""
MAX_LENGTH = 65_535 * 256
"""As many segments as CUDA launches along the second axis of a grid; then no head has 2^31 numbers."""
MAX_SHARED_BYTES = 217_088
"""Shared memory of the largest tile within these limits, as compiled for compute capability 9.0."""


def load(name: str) -> Any:
    """The module of a kernel, imported when it is first used, since Triton may not be installed."""
    return import_module(f"{__name__}.{name}")


def of(unit: Any, q: Tensor, k: Tensor, v: Tensor) -> Form | None:
    """The kernel that the class of a mechanism declares as ``own_kernel``, for tensors like these; None if none."""
    own_kernel = own_form(unit, "own_kernel")
    form: Form | None = own_kernel(q.dtype) if own_kernel is not None and serves(q, k, v) else None
    return form if form is not None and self_test.passes(self_test.own_kernel_test(unit, q, v)) else None


def saves_launches(q: Tensor) -> bool:
    """Return whether a kernel would take fewer launches than PyTorch's form, or is wanted always.

    Up to a length PyTorch attends in one piece, by about as few launches, and its products are as fast.
    """
    return q.shape[-2] > GPU_GRAM_MAX_LENGTH or choice() == "always"


def choice() -> str:
    """Read from the environment which kernels to use: ``auto``, ``off`` or ``always``.

    Raises:
        UnknownName: If the variable has another value.
    """
    given = os.environ.get(SWITCH) or "auto"
    if given not in CHOICES:
        raise UnknownName(f"choice of {SWITCH}", given, CHOICES)
    return given


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether kernels take tensors like these, whatever the mechanism."""
    return (
        choice() != "off"
        and q.shape == k.shape
        and q.shape[:-1] == v.shape[:-1]
        and q.numel() > 0
        and v.numel() > 0
        and max(q.shape[-1], v.shape[-1]) <= MAX_HEAD_DIM
        and q.shape[-2] <= MAX_LENGTH
        and q.dtype in DTYPES
        and all(x.dtype == q.dtype and x.device == q.device for x in (q, k, v))
        and runs_on(q.device)  # last, since it warns where a kernel would be used but for its assembler
    )


@lru_cache
def runs_on(device: torch.device) -> bool:
    """True if kernels fit the device and its assembler is known to be good; one warning if only the latter fails."""
    if not fits(device):
        return False
    objection = load("_assembler").objection(torch.cuda.get_device_capability(device))
    if objection is not None:
        self_test.warn_once(f"PyTorch's forms run in place of Triton kernels: {objection}")
    return objection is None


def fits(device: torch.device) -> bool:
    """Return whether Triton is installed and every tile fits the device's shared memory."""
    if device.type != "cuda" or torch.version.cuda is None or find_spec("triton") is None:
        return False
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", 0)) >= MAX_SHARED_BYTES
