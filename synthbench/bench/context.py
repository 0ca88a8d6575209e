"""The longest sequence that fits into so much memory, found by trying and not by a formula."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from synthbench.bench.instruments import Call, one_thread, peak_bytes, seconds, unless_out_of_memory
from synthbench.bench.scaling import DIRECTIONS, Setting, built, call_of, dtype_of, forms_of
from synthbench.runner.environment import resolve_device

SHORTEST = 128


def measure(
    mechanisms: Mapping[str, Mapping[str, str]],
    *,
    gigabytes: float,
    longest: int,
    max_seconds: float,
    batch_size: int,
    device: str,
    dtype: str,
) -> Iterator[dict[str, Any]]:
    """The longest length of every mechanism as a layer, in both directions, to within a 16th.

    Args:
        mechanisms: Arguments by name.
        gigabytes: What tensors may hold beyond parameters and inputs, in GiB.
        longest: No length beyond it is tried.
        max_seconds: A length at which one call takes longer is not exceeded.
        batch_size: Sequences a call.
        device: Where.
        dtype: Type of number.

    Raises:
        UnknownName: If a mechanism or an argument does not exist.
        UsageError: If the device or the type is not allowed.
    """
    target, kind = resolve_device(device), dtype_of(dtype)
    with one_thread():
        for name in mechanisms:
            for direction in DIRECTIONS:

                def attempt(length: int, direction: str = direction, name: str = name) -> Call:
                    setting = Setting(direction, length, batch_size, target, kind)
                    layer, *_ = forms_of(built(name, mechanisms[name], setting))
                    return call_of(layer, setting)

                yield {
                    "bench": "context",
                    "mechanism": name,
                    "direction": direction,
                    "gigabytes": gigabytes,
                    "batch_size": batch_size,
                    "dtype": dtype,
                    **_longest(attempt, target, int(gigabytes * 2**30), longest, max_seconds),
                }


def _longest(
    attempt: Callable[[int], Call], device: torch.device, budget: int, longest: int, max_seconds: float
) -> dict[str, Any]:
    """Double the length until it does not fit, then halve the gap."""
    fits: dict[str, Any] = {"length": None, "peak_bytes": None, "seconds": None}
    ended, too_long, length = "memory", None, SHORTEST
    while length <= longest:
        call = attempt(length)
        peak = unless_out_of_memory(partial(peak_bytes, call, device))
        if peak is None or peak > budget:
            too_long = length
        else:
            fits = {"length": length, "peak_bytes": peak, "seconds": seconds(call, device)}
            if fits["seconds"] > max_seconds:
                ended = "time"
                break
        if too_long is None:
            length *= 2
            continue
        known = fits["length"] or 0
        if too_long - known <= max(1, known // 16):
            break
        length = (known + too_long) // 2
    else:
        ended = "longest"
    return {**fits, "ended": ended}
