"""Functions that measure for benchmarks: times of calls, their peak memory, and the rates that a device reaches."""

import ctypes
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker

from synthbench.process import settings_restored
from synthbench.runner.executors.base import WORKER_ENVIRONMENT
from synthbench.training.train import is_out_of_memory

Call = Callable[[], object]
T = TypeVar("T")

QUEUED_S = 4e-3
"""Shortest duration in seconds that is timed on a GPU; a shorter call is queued several times to last this long."""
CLOCK_HZ = 2e9
"""Upper bound of a GPU's clock rate, in cycles per second."""

SQUARE = {"cpu": 1024, "cuda": 8192}
"""Side of the square matrices whose product measures a device's arithmetic rate."""
COPIED = {"cpu": 2**25, "cuda": 2**28}
"""Size of the tensor that is copied to measure a device's memory rate, in numbers: more than any cache holds."""


@contextmanager
def as_in_a_worker() -> Iterator[None]:
    """Run a ``with`` block as in a training worker: with one thread, and with freed memory kept for reuse.

    When the block ends, the number of threads is restored, but freed memory is still kept.
    """
    keep_freed_memory()
    with settings_restored():
        torch.set_num_threads(1)
        yield


def give_back_memory() -> None:
    """Return unused memory of this process to the system, where possible.

    Call this before each new input size: freed blocks do not fit the next size, so memory use would grow.
    """
    trim = of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def of_glibc(name: str) -> Callable[..., int] | None:
    """Return the function of glibc with the given name, or None if the system has another C library."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)


def keep_freed_memory() -> None:
    """Make this process keep freed memory from now on, as training workers do; without glibc, this does nothing."""
    tell = of_glibc("mallopt")
    if tell is not None:
        for option, name in _GLIBC_OPTIONS.items():
            tell(option, min(int(WORKER_ENVIRONMENT[name]), 2**31 - 1))


_GLIBC_OPTIONS = {-3: "MALLOC_MMAP_THRESHOLD_", -1: "MALLOC_TRIM_THRESHOLD_"}
"""The numbers of malloc.h for M_MMAP_THRESHOLD and M_TRIM_THRESHOLD."""


def interleaved(calls: Mapping[str, Call], num_repeats: int, device: torch.device) -> dict[str, list[float]]:
    """Time several calls in turn, so that a slow minute of the machine slows all of them equally.

    Return a dictionary from the name of each call to the seconds of its timings.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(num_repeats):
        for name, call in calls.items():
            taken[name].append(seconds(call, device))
    return taken


def seconds(call: Call, device: torch.device) -> float:
    """Measure the seconds of one call: GPU time on a GPU, otherwise CPU time of this process.

    On a GPU, the time that the host takes to launch operations is excluded: a short call is queued several times while
    the GPU is kept waiting. A call that itself waits for the GPU cannot be queued, so its waiting time is included.

    Python's garbage collector is off during the call, since its work grows with the number of objects in use.
    """
    with _uncollected():
        if device.type != "cuda":
            began = time.process_time()
            call()
            return time.process_time() - began
        queued_s, once = _queued(call, 1, device, held_s=0.0)
        if once >= QUEUED_S:
            return once
        count = math.ceil(QUEUED_S / max(once, queued_s, 1e-5))
        # Hold the GPU up for twice the time that the host needs, since launches do not all take equally long.
        return _queued(call, count, device, held_s=2 * count * queued_s)[1]


def _queued(call: Call, count: int, device: torch.device, *, held_s: float) -> tuple[float, float]:
    """Queue ``count`` calls on a GPU that first waits ``held_s`` seconds; return host and GPU seconds per call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    if held_s:
        torch.cuda._sleep(int(held_s * CLOCK_HZ))  # noqa: SLF001 - PyTorch has no public kernel that does nothing
    start.record()
    began = time.perf_counter()
    for _ in range(count):
        call()
    queued_s = time.perf_counter() - began
    end.record()
    torch.cuda.synchronize(device)
    return queued_s / count, float(start.elapsed_time(end)) / 1e3 / count


@contextmanager
def _uncollected() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def peak_bytes(call: Call, device: torch.device) -> int:
    """Measure the peak memory of a call: the bytes of all tensors at the peak, minus the bytes before the call."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    changes = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(changes, key=lambda event: event.start_ns())])
    return int(held.max(initial=0))


def flops_of(call: Call) -> int:
    """Count the floating-point operations of matrix products in a call; only PyTorch's own operations are counted."""
    in_place = dict.fromkeys((torch.ops.aten.addmm_, torch.ops.aten.baddbmm_), _flops_of_product)  # not counted else
    counter = FlopCounterMode(display=False, custom_mapping=in_place)
    counter.mod_tracker = _Untracked()
    with counter:
        call()
    return int(counter.get_total_flops())


def _flops_of_product(_added_to: torch.Size, a: torch.Size, b: torch.Size, **_: object) -> int:
    return 2 * math.prod(a) * b[-1]


class _Untracked(ModuleTracker):
    """A module tracker for PyTorch's counter of operations that sets no hooks.

    Hooks fail in modules that are called while gradients are off.
    """

    # Not `Self`, which beartype cannot check under jaxtyping's import hook.
    def __enter__(self) -> "_Untracked":  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        return


def unless_out_of_memory(call: Callable[[], T]) -> T | None:
    """Return the result of the call, or None if the call runs out of memory."""
    try:
        return call()
    except (RuntimeError, MemoryError) as problem:
        if not is_out_of_memory(problem):
            raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # its pieces may be of no use to the next call
        return None


@dataclass(frozen=True)
class Roof:
    """The rates of arithmetic and of memory access that were measured on a device."""

    flops_per_s: float
    bytes_per_s: float


def roof_of(device: torch.device, dtype: torch.dtype) -> Roof:
    """Measure the operations per second and the bytes per second that a device reaches.

    They are measured with a large matrix product and a large copy; each is the median of five timings.
    """
    side, count = SQUARE[device.type], COPIED[device.type]
    square = torch.randn(side, side).to(device, dtype)
    numbers = torch.zeros(count, device=device, dtype=dtype)
    copy = torch.empty_like(numbers)
    taken = interleaved({"multiply": lambda: square @ square, "move": lambda: copy.copy_(numbers)}, 5, device)
    return Roof(
        flops_per_s=2 * side**3 / median(taken["multiply"]),
        bytes_per_s=2 * count * numbers.element_size() / median(taken["move"]),
    )
