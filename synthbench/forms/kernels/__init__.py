"""Triton kernels for CUDA devices: faster versions of the PyTorch code (the "PyTorch form") of two mechanisms.

=================  =======================================  ================================================
mechanism          forward                                  backward
=================  =======================================  ================================================
``slay``           features made on chip, never in memory   made again on chip
``yat-spherical``  tiles of the exact kernel (``sum``)      tiles of the exact kernel
=================  =======================================  ================================================

A kernel can run if Triton is installed and the CUDA device has enough shared memory (an H100 has). The tensors q, k and
v must not be empty and must have the same length and dtype: float32, bfloat16 or float16. Their sizes must be within
the limits below. By default, a mechanism uses its kernel for long sequences only, see :func:`saves_launches`. If the
environment variable ``SYNTHBENCH_KERNELS`` is ``off``, no kernel runs; if it is ``always``, kernels run at every
length. Wherever no kernel runs, the PyTorch form runs.

Every kernel must pass two checks, even with ``always``. On compute capability 9, the assembler that Triton uses must be
known to be good (``_assembler``). On every device, the kernel must agree with a computation in float64 when it is first
used (``self_test``). If a check fails, the PyTorch form runs, and one warning says why.

Sums are in float32. The operands of products are bfloat16 for bfloat16 inputs, and TF32 for float16 inputs. Float32
inputs also use TF32 if ``torch.backends.cuda.matmul.allow_tf32`` is set. Otherwise a float32 operand is split into
three bfloat16 parts. The sum of six products of these parts is as accurate as a product in float32. All products run on
tensor cores.

On a CPU, tests run the kernels in Triton's interpreter, with emulated rounding of products, and compare values and
gradients with float64. All kernels compile for compute capability 9.0; ``reports/bench/sm_90`` lists their registers,
spilled bytes and tensor-core instructions. On an H100 and an H200 with Triton 3.6, values and gradients were compared
with float64 at the sizes in docs/benches.md. On an H100, SLAY attends to 131,072 tokens of bfloat16 in 1.24 ms. Some
sizes gave wrong sums, probably because of the assembler (ptxas 12.8). The limits below exclude these sizes.
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
"""Function from q, k and v, each [..., length, width], to the outputs."""

SWITCH = "SYNTHBENCH_KERNELS"
"""Name of the environment variable whose value is one of ``CHOICES``."""
CHOICES = ("auto", "off", "always")

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEAD_DIM = 64
"""Largest width of a query, key or value."""
MAX_FEATURES = 128
"""Largest number of exponential features."""
MAX_ANCHORS = 16
"""Largest number of anchors of ``slay``. With 32, outputs were wrong at some sizes on an H200."""
MIN_SLAY_WIDTH_BFLOAT16 = 32
"""Smallest width of a head for ``slay`` in bfloat16. Heads of width 16 with 16 anchors gave wrong gradients, or an
illegal memory access, on an H100."""
MAX_LENGTH = 65_535 * 256
"""Largest length: the most blocks that CUDA launches along the second axis of a grid, times the shortest segment. At
this length a head still has fewer than 2^31 numbers."""
MAX_SHARED_BYTES = 217_088
"""Shared memory of the largest tile within these limits, as compiled for compute capability 9.0."""


def load(name: str) -> Any:
    """Import the module of a kernel. This happens on first use only, since Triton may not be installed."""
    return import_module(f"{__name__}.{name}")


def of(unit: Any, q: Tensor, k: Tensor, v: Tensor) -> Form | None:
    """Return the GPU kernel of the mechanism ``unit`` for q, k and v; None if no such kernel can process them.

    The mechanism's class itself must declare the method ``own_kernel``. The result is None also if
    ``SYNTHBENCH_KERNELS`` is ``off``, or if the kernel fails its self-test.
    """
    own_kernel = own_form(unit, "own_kernel")
    form: Form | None = own_kernel(q.dtype) if own_kernel is not None and serves(q, k, v) else None
    return form if form is not None and self_test.passes(self_test.own_kernel_test(unit, q, v)) else None


def saves_launches(q: Tensor) -> bool:
    """Return True if a kernel saves launches at the length of ``q``, or if ``SYNTHBENCH_KERNELS`` is ``always``.

    A kernel saves launches for more than ``GPU_GRAM_MAX_LENGTH`` tokens. Up to this length, the PyTorch code computes
    all scores at once, with about as few launches as a kernel.
    """
    return q.shape[-2] > GPU_GRAM_MAX_LENGTH or choice() == "always"


def choice() -> str:
    """Return the value of the variable ``SYNTHBENCH_KERNELS``: ``auto`` (the default), ``off`` or ``always``.

    Raises:
        UnknownName: If the variable has any other value.
    """
    given = os.environ.get(SWITCH) or "auto"
    if given not in CHOICES:
        raise UnknownName(f"choice of {SWITCH}", given, CHOICES)
    return given


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether kernels are enabled and support the shapes, dtype and device of these tensors."""
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
    """Return True if the device can run the kernels, and no fault of Triton's assembler (ptxas) is known for it.

    If the assembler is the only obstacle, one warning per process says so.
    """
    if not fits(device):
        return False
    objection = load("_assembler").objection(torch.cuda.get_device_capability(device))
    if objection is not None:
        self_test.warn_once(f"PyTorch's forms run in place of Triton kernels: {objection}")
    return objection is None


def fits(device: torch.device) -> bool:
    """Return whether Triton is installed and the CUDA device has enough shared memory for every kernel's tiles."""
    if device.type != "cuda" or torch.version.cuda is None or find_spec("triton") is None:
        return False
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", 0)) >= MAX_SHARED_BYTES
