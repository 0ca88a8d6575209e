"""What attention costs as sequences grow: time, memory, and how near it comes to the floor of its arithmetic.

A *core* form goes from q, k, v to the outputs of the heads; *layer* is the whole mechanism with its projections, in the
form that it chooses itself. Time is the median of repeats in which all forms of a length take turns. Memory is the peak
of what tensors held beyond the inputs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from synthbench.bench.instruments import (
    Call,
    Roof,
    exponent,
    interleaved,
    one_thread,
    peak_bytes,
    roof_of,
    unless_out_of_memory,
)
from synthbench.bench.published import published
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS, _linear, _scores, _streaming
from synthbench.mechanisms.base import FeatureAttention, Mechanism, ScoreAttention
from synthbench.runner.environment import resolve_device

MODEL_DIM, NUM_HEADS = 256, 8

DIRECTIONS = ("forward", "forward+backward")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

FITTED_SPAN = 16
"""Exponents are fitted over the lengths from the longest down to this part of it."""

Takes = Literal["layer", "heads"]


@dataclass(frozen=True)
class Limits:
    """Beyond what a form is not measured at longer lengths."""

    seconds: float
    """One call."""
    gigabytes: float
    """Peak memory."""


@dataclass(frozen=True)
class Form:
    """One way to compute a mechanism."""

    name: str
    takes: Takes
    """Whether it is called with the tokens [batch, length, width], or with q, k and v of all heads."""
    call: Callable[..., Tensor]


@dataclass(frozen=True)
class Setting:
    """What a form is called on."""

    direction: str
    length: int
    batch_size: int
    device: torch.device
    dtype: torch.dtype


def measure(
    mechanisms: Mapping[str, Mapping[str, str]],
    lengths: Sequence[int],
    *,
    batch_size: int,
    num_repeats: int,
    device: str,
    dtype: str,
    limits: Limits,
) -> Iterator[dict[str, Any]]:
    """Rows for every mechanism, form, direction and length, as they are measured.

    A form that would exceed a limit, as it grew so far, has a row that says so and none at longer lengths.

    Raises:
        UnknownName: If a mechanism or an argument does not exist.
        UsageError: If the device or the type is not allowed.
    """
    target, kind = resolve_device(device), dtype_of(dtype)
    with one_thread():
        roof = roof_of(target, kind)
        for name, arguments in mechanisms.items():
            for direction in DIRECTIONS:
                excluded: dict[str, str] = {}
                for length in sorted(lengths):
                    setting = Setting(direction, length, batch_size, target, kind)
                    forms = forms_of(built(name, arguments, setting))
                    for row in _rows(forms, setting, num_repeats, limits, roof, excluded):
                        yield {"bench": "scaling", "mechanism": name, **row}


def dtype_of(name: str) -> torch.dtype:
    """The type of number with a name.

    Raises:
        UsageError: If it is not allowed.
    """
    if name not in DTYPES:
        raise UsageError(f"dtype is {name!r}; allowed: {', '.join(DTYPES)}")
    return DTYPES[name]


def summary(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For every mechanism, form and direction the longest length, its cost, and the exponents of time and memory."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["mechanism"], row["form"], row["direction"]), []).append(row)
    facts = []
    for (mechanism, form, direction), group in groups.items():
        measured = [row for row in group if row["status"] == "ok"]
        if not measured:
            continue
        longest = measured[-1]
        fitted = [row for row in measured if row["length"] * FITTED_SPAN >= longest["length"]]
        facts.append(
            {
                "mechanism": mechanism,
                "form": form,
                "direction": direction,
                "longest": longest["length"],
                "ms": longest["median_ms"],
                "tokens_per_s": longest["tokens_per_s"],
                "peak_mb": longest["peak_bytes"] / 2**20,
                "roofline_share": longest["roofline_share"],
                "time_exponent": _fitted(fitted, "median_ms"),
                "memory_exponent": _fitted(fitted, "peak_bytes"),
                "ended": group[-1]["status"],
            }
        )
    return facts


def forms_of(unit: Mechanism) -> list[Form]:
    """The forms of a mechanism; those of its heads all compute the same."""
    forms = [Form("layer", "layer", unit.forward)]
    if isinstance(unit, FeatureAttention):
        guard: dict[str, Any] = {"guard": unit.guard, "delta": unit.delta}

        def by_factors(form: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return form(unit.factors(q, "query"), unit.factors(k, "key"), v, **guard)

        forms += [
            Form("gram", "heads", partial(by_factors, _linear.gram)),
            Form("chunked", "heads", partial(by_factors, _linear.chunked)),
            Form("streamed", "heads", partial(_streaming.streamed, unit.factors, **guard)),
            Form("published", "heads", partial(published, unit)),
        ]
    elif isinstance(unit, ScoreAttention):
        forms += [
            Form(name, "heads", partial(form, unit.scores, unit.normaliser, power=unit.softermax_power))
            for name, form in (("dense", _scores.dense), ("blocked", _scores.blocked))
        ]
    return forms


def built(name: str, arguments: Mapping[str, Any], setting: Setting) -> Mechanism:
    """A mechanism of the measured width, for sequences of the setting's length."""
    generator = torch.Generator().manual_seed(0)
    unit = MECHANISMS[name](
        model_dim=MODEL_DIM, num_heads=NUM_HEADS, max_length=setting.length, generator=generator, **arguments
    )
    return unit.to(setting.device, setting.dtype)


def _rows(
    forms: Sequence[Form],
    setting: Setting,
    num_repeats: int,
    limits: Limits,
    roof: Roof,
    excluded: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """Measure the forms at one length; ``excluded`` keeps what became of those that are measured no further."""
    calls = {form.name: call_of(form, setting) for form in forms if form.name not in excluded}
    costs = {name: unless_out_of_memory(partial(_cost, call, setting.device)) for name, call in calls.items()}
    fitting = {name: calls[name] for name, cost in costs.items() if cost is not None}
    taken = interleaved(fitting, num_repeats, setting.device)
    for form in forms:
        status = excluded.get(form.name, "ok")
        if status == "reported":
            continue
        if form.name in costs and costs[form.name] is None:
            status = "oom"
        yield {
            "form": form.name,
            "takes": form.takes,
            "direction": setting.direction,
            "length": setting.length,
            "batch_size": setting.batch_size,
            "heads": NUM_HEADS,
            "head_dim": MODEL_DIM // NUM_HEADS,
            "dtype": str(setting.dtype).removeprefix("torch."),
            "status": status,
            **_numbers(taken.get(form.name), costs.get(form.name), form, setting, roof),
        }
        if status != "ok":
            excluded[form.name] = "reported"
        elif _exceeds(taken[form.name], costs[form.name], limits):
            excluded[form.name] = "over budget"


def inputs_of(setting: Setting) -> dict[Takes, tuple[Tensor, ...]]:
    """Random tokens, and random queries, keys and values."""
    generator = torch.Generator().manual_seed(setting.length)

    def draw(*shape: int) -> Tensor:
        return torch.randn(setting.batch_size, *shape, generator=generator).to(setting.device, setting.dtype)

    head = (NUM_HEADS, setting.length, MODEL_DIM // NUM_HEADS)
    return {"layer": (draw(setting.length, MODEL_DIM),), "heads": (draw(*head), draw(*head), draw(*head))}


def call_of(form: Form, setting: Setting) -> Call:
    """A call of a form on random inputs."""
    inputs = inputs_of(setting)[form.takes]

    def forward() -> None:
        with torch.no_grad():
            form.call(*inputs)

    def forward_and_backward() -> None:
        torch.autograd.backward(form.call(*(tensor.detach().requires_grad_() for tensor in inputs)).sum())

    return forward if setting.direction == "forward" else forward_and_backward


def _cost(call: Call, device: torch.device) -> tuple[int, int]:
    """Peak memory and floating-point operations of a call."""
    with FlopCounterMode(display=False) as counter:
        call()
    return peak_bytes(call, device), counter.get_total_flops()


def _numbers(
    taken: Sequence[float] | None,
    cost: tuple[int, int] | None,
    form: Form,
    setting: Setting,
    roof: Roof,
) -> dict[str, Any]:
    names = ("median_ms", "spread", "tokens_per_s", "peak_bytes", "flops", "floor_ms", "roofline_share")
    if taken is None or cost is None:
        return dict.fromkeys(names)
    low, middle, high = (float(value) for value in np.quantile(taken, [0.25, 0.5, 0.75]))
    peak, flops = cost
    one = setting.batch_size * setting.length * MODEL_DIM * setting.dtype.itemsize
    moved = one * (2 if form.takes == "layer" else 4) * (1 if setting.direction == "forward" else 3)
    floor = roof.floor_s(flops, moved)
    tokens_per_s = setting.batch_size * setting.length / middle
    numbers = (1e3 * middle, (high - low) / middle, tokens_per_s, peak, flops, 1e3 * floor, floor / middle)
    return dict(zip(names, numbers, strict=True))


def _exceeds(taken: Sequence[float], cost: tuple[int, int] | None, limits: Limits) -> bool:
    """Whether a doubled length would exceed a limit, should the cost grow with the square."""
    peak = 0 if cost is None else cost[0]
    return 4 * float(np.median(taken)) > limits.seconds or 4 * peak > limits.gigabytes * 2**30


def _fitted(rows: Sequence[Mapping[str, Any]], cost: str) -> float | None:
    return exponent([row["length"] for row in rows], [float(row[cost]) for row in rows]) if len(rows) > 1 else None
