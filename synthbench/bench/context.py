"""The longest sequence that a mechanism can process within a memory limit, found by trial instead of a formula."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from synthbench.bench.forms import DIRECTIONS, Form, Setting, built, call_of, dtype_of, inputs_of
from synthbench.bench.instruments import (
    Call,
    as_in_a_worker,
    give_back_memory,
    peak_bytes,
    seconds,
    unless_out_of_memory,
)
from synthbench.bench.rows import Row, Table
from synthbench.mechanisms import MECHANISMS
from synthbench.options import coerce, term_of
from synthbench.registry import version_of

SHORTEST = 128

IDENTITY = ("mechanism", "direction", "gigabytes", "batch_size", "dtype", "tried_to", "max_seconds")
"""Columns that identify a row among the rows of one device."""

SHOWN = (
    *("mechanism", "direction", "gigabytes", "batch_size", "dtype"),
    *("length", "peak_bytes", "seconds", "ended"),
)
"""Columns of a row that are printed."""


def measure(
    mechanisms: Mapping[str, Mapping[str, Any]],
    table: Table,
    *,
    gigabytes: float,
    longest: int,
    max_seconds: float,
    batch_size: int,
    dtype: str,
) -> Iterator[Row]:
    """Find the longest sequence that a layer of each mechanism can process within a memory limit.

    Each mechanism gets one row for the forward pass alone, and one for forward and backward pass together. The true
    maximum is at most a sixteenth above the reported length, unless ``longest`` or ``max_seconds`` ended the search.
    Rows already in the table are not measured again, unless the mechanism's version has changed.

    Args:
        mechanisms: Options of each mechanism, by the mechanism's name.
        table: Table for the rows; its device is measured.
        gigabytes: Limit on the memory in GiB, not counting parameters and inputs.
        longest: Longest length to try, in tokens.
        max_seconds: Time limit of one call, in seconds. If a call takes longer, the search ends.
        batch_size: Sequences per call.
        dtype: Name of the number type, such as ``float32``.
    """
    device, kind = table.device, dtype_of(dtype)
    with as_in_a_worker():
        for name, arguments in mechanisms.items():
            unit = MECHANISMS[name]
            for direction in DIRECTIONS:
                about = {
                    "bench": "context",
                    "mechanism": term_of(unit, coerce("mechanism", unit, dict(arguments))),
                    "mech_version": version_of(unit),
                    "direction": direction,
                    "gigabytes": gigabytes,
                    "batch_size": batch_size,
                    "dtype": dtype,
                    "tried_to": longest,
                    "max_seconds": max_seconds,
                }
                if table.find(about) is None:
                    first = Setting(direction, SHORTEST, batch_size, device, kind)
                    attempt = partial(_attempt, name, arguments, first)
                    yield table.add(about | _longest(attempt, device, int(gigabytes * 2**30), longest, max_seconds))


def _attempt(name: str, arguments: Mapping[str, Any], setting: Setting, length: int) -> Call:
    setting = replace(setting, length=length)
    layer = Form("layer", "layer", built(name, arguments, setting).forward)
    return call_of(layer, inputs_of(setting), setting)


def _longest(
    attempt: Callable[[int], Call], device: torch.device, budget: int, longest: int, max_seconds: float
) -> dict[str, Any]:
    """Double the length until a call exceeds ``budget`` bytes, then bisect between the last two lengths.

    The search also ends beyond ``longest`` tokens, or once a call takes more than ``max_seconds``.
    """
    fits: dict[str, Any] = {"length": None, "peak_bytes": None, "seconds": None}
    ended, too_long, length = "memory", None, SHORTEST
    while length <= longest:
        give_back_memory()
        call = unless_out_of_memory(partial(attempt, length))
        peak = None if call is None else unless_out_of_memory(partial(peak_bytes, call, device))
        if call is None or peak is None or peak > budget:
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
