"""Tests of kernels against float64 on the user's device, each run when a process first uses the kernel.

A kernel is compiled anew for every dtype and width, so each combination is tested. A test compares outputs and
gradients for ``LENGTH`` tokens. A kernel that fails is not used, and one warning names it. Results are kept in memory
only, since a test takes less than a second once Triton has cached the compiled kernel on disk.
"""

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from functools import lru_cache, partial
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor

LENGTH = 600
"""Number of tokens: three segments, the last one incomplete, so that states and partial tiles are tested too."""
SEGMENT = 256
"""Number of tokens in a segment during the test: two tiles. By default a kernel may take longer segments."""
NUM_HEADS = 2

ALLOWED = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
"""Largest allowed error, as a fraction of the largest value, or of 1 if all values are smaller."""


Form = Callable[..., Tensor]
"""Attention: a function from q, k and v to the outputs."""


class OwnKernel(NamedTuple):
    """The test of the Triton kernel that a mechanism declares as ``own_kernel``, forward and backward."""

    mechanism: Any
    options: tuple[tuple[str, Any], ...]
    key_dim: int
    value_dim: int
    device: torch.device
    dtype: torch.dtype
    is_tf32: bool

    def __str__(self) -> str:
        """Name the kernel for messages."""
        return f"{self.mechanism.name} in heads of {self.key_dim}"

    def failure(self) -> str | None:
        """Run the test; return a description of the error, or None if the kernel passes.

        The test builds a new mechanism, since the user's mechanism may consist of several runs that are trained
        together.
        """
        built_with = dict(self.options) | {"num_heads": NUM_HEADS, "model_dim": NUM_HEADS * self.key_dim}
        generator = torch.Generator().manual_seed(0)
        unit = self.mechanism(**built_with, generator=generator).to(self.device, self.dtype)
        kernel = unit.own_kernel(self.dtype)
        if "segment" in signature(kernel).parameters:
            kernel = partial(kernel, segment=SEGMENT)
        inputs = _draw((self.key_dim, self.key_dim, self.value_dim), self.device, self.dtype)
        return deviation(kernel, unit.attend_by_torch, deepcopy(unit).double().attend_by_torch, inputs)


_results: dict[OwnKernel, bool] = {}


def own_kernel_test(unit: Any, q: Tensor, v: Tensor) -> OwnKernel:
    """Build the test of a mechanism's kernel for the widths, dtype and device of these queries and values."""
    options = tuple((field.name, getattr(unit, field.name)) for field in fields(unit) if field.init)
    is_tf32 = torch.backends.cuda.matmul.allow_tf32
    return OwnKernel(type(unit), options, q.shape[-1], v.shape[-1], q.device, q.dtype, is_tf32)


def passes(test: OwnKernel) -> bool:
    """Return whether a kernel passes a test; each test runs once per process."""
    if test not in _results:
        if test.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return False  # nothing can be computed now; training tests in its plain steps, which come first
        failure = _failure(test)
        if failure is not None:
            dtype = str(test.dtype).removeprefix("torch.")
            warn_once(f"PyTorch's form runs in place of the Triton kernel of {test} in {dtype}: {failure}")
        _results[test] = failure is None
    return _results[test]


@lru_cache
def warn_once(message: str) -> None:
    """Issue a warning, but only once per process."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _failure(test: OwnKernel) -> str | None:
    """Run a test outside the caller's inference mode and autocast; describe the error, or None if the test passes."""
    plain_numbers = torch.autocast(test.device.type, enabled=False)
    try:
        with torch.inference_mode(mode=False), plain_numbers, torch.device("cpu"):  # the first gives gradients too
            return test.failure()
    except torch.OutOfMemoryError:
        raise  # which says nothing about the kernel
    except Exception as problem:  # noqa: BLE001 - compilers, assemblers and launches fail in ways of their own
        return f"{type(problem).__name__}: {str(problem).partition(chr(10))[0]}"


def _draw(widths: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, NUM_HEADS, LENGTH, width, generator=generator).to(device, dtype) for width in widths)


def deviation(kernel: Form, by_torch: Form, exact: Form, inputs: tuple[Tensor, ...]) -> str | None:
    """Compare a kernel with ``exact``, which is computed in float64; describe the first error above the limit.

    Return None if no error is above the limit. Outputs and gradients are compared. The limit is the larger of two
    numbers. The first is ``ALLOWED`` (by dtype) times the largest magnitude among the exact values, which counts as at
    least 1. The second is three times the error of ``by_torch``, the same computation in PyTorch. This second number
    matters where a denominator is near 0: there the errors of the kernel and of PyTorch are both large.
    """
    dtype = inputs[0].dtype
    is_tf32 = dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32
    share = ALLOWED[torch.float16 if is_tf32 else dtype]  # TF32 has as many digits as float16
    found, plain = (_computed(form, inputs) for form in (kernel, by_torch))
    expected = _computed(exact, tuple(x.double() for x in inputs))
    names = ("outputs", "gradients of q", "gradients of k", "gradients of v")
    for name, own, of_torch, true in zip(names, found, plain, expected, strict=True):
        error, error_of_torch = (float((x.double() - true).abs().max()) for x in (own, of_torch))
        allowed = max(share * max(float(true.abs().max()), 1.0), 3 * error_of_torch)
        if not own.isfinite().all() or error > allowed:
            return f"{name} differ from float64's by {error:.2g}; allowed: {allowed:.2g}"
    return None


def _computed(form: Form, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    q, k, v = inputs = tuple(x.detach().requires_grad_() for x in inputs)
    out = form(q, k, v)
    return [out.detach(), *torch.autograd.grad(out.double().sin().sum(), inputs)]
