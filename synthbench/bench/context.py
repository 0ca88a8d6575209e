"""The longest sequence that a mechanism can process within a memory limit, found by trial instead of a formula."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

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
    kind = dtype_of(dtype)
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
                    shortest = Setting(direction, SHORTEST, batch_size, table.device, kind)
                    attempt = partial(_attempt, name, arguments)
                    yield table.add(about | _longest(attempt, shortest, int(gigabytes * 2**30), longest, max_seconds))


def _attempt(name: str, arguments: Mapping[str, Any], setting: Setting) -> tuple[Call, int]:
    """Return a call of a mechanism's layer, and the call's peak memory in bytes."""
    layer = Form("layer", "layer", built(name, arguments, setting).forward)
    call = call_of(layer, inputs_of(setting), setting)
    return call, peak_bytes(call, setting.device)


def _longest(
    attempt: Callable[[Setting], tuple[Call, int]], setting: Setting, budget: int, longest: int, max_seconds: float
) -> dict[str, Any]:
    """Double the length until a call exceeds ``budget`` bytes, then bisect between the last two lengths.

    The search also ends beyond ``longest`` tokens, or once a call takes more than ``max_seconds``.
    """
    fits: dict[str, Any] = {"length": None, "peak_bytes": None, "seconds": None}
    too_long, length = None, setting.length
    tried: tuple[Call, int] | None
    while length <= longest:
        tried = None  # the call before
        give_back_memory()
        tried = unless_out_of_memory(partial(attempt, replace(setting, length=length)))
        if tried is None or tried[1] > budget:
            too_long = length
        else:
            fits = {"length": length, "peak_bytes": tried[1], "seconds": seconds(tried[0], setting.device)}
            if fits["seconds"] > max_seconds:
                return {**fits, "ended": "time"}
        known = fits["length"] or 0
        if too_long is None:
            length *= 2
        elif too_long - known <= max(1, known // 16):
            return {**fits, "ended": "memory"}
        else:
            length = (known + too_long) // 2
    return {**fits, "ended": "longest"}
