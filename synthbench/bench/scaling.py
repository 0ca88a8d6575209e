"""What attention costs as sequences grow: time, memory, and how near it comes to the floor of its arithmetic.

A *core* form goes from q, k, v to the outputs of the heads; *layer* is the whole mechanism with its projections, in the
form that it chooses itself. Time is the median of repeats in which all forms of a length take turns. Memory is the peak
of what tensors held beyond the inputs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from synthbench.bench.instruments import Roof, exponent, interleaved, peak_bytes, roof_of
from synthbench.bench.published import per_node_chunks, prefix_sums
from synthbench.errors import UsageError
from synthbench.mechanisms import MECHANISMS, _linear, _scores, _streaming
from synthbench.mechanisms.base import FeatureAttention, Mechanism, ScoreAttention
from synthbench.mechanisms.slay._base import ProductAttention
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
class _Setting:
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
    target = resolve_device(device)
    if dtype not in DTYPES:
        raise UsageError(f"dtype is {dtype!r}; allowed: {', '.join(DTYPES)}")
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        roof = roof_of(target, DTYPES[dtype])
        for name, arguments in mechanisms.items():
            for direction in DIRECTIONS:
                excluded: dict[str, str] = {}
                for length in sorted(lengths):
                    setting = _Setting(direction, length, batch_size, target, DTYPES[dtype])
                    forms = forms_of(_built(name, arguments, setting))
                    for row in _rows(forms, setting, num_repeats, limits, roof, excluded):
                        yield {"bench": "scaling", "mechanism": name, **row}
    finally:
        torch.set_num_threads(threads_before)


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

        def by_prefix_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            query, key = reduce(_linear.outer, unit.factors(q, "query")), reduce(_linear.outer, unit.factors(k, "key"))
            return prefix_sums(query, key, v, **guard)

        forms += [
            Form("gram", "heads", partial(by_factors, _linear.gram)),
            Form("chunked", "heads", partial(by_factors, _linear.chunked)),
            Form("streamed", "heads", partial(_streaming.streamed, unit.factors, **guard)),
            Form(
                "published",
                "heads",
                partial(per_node_chunks, unit) if isinstance(unit, ProductAttention) else by_prefix_sums,
            ),
        ]
    elif isinstance(unit, ScoreAttention):
        forms += [
            Form(name, "heads", partial(form, unit.scores, unit.normaliser, power=unit.softermax_power))
            for name, form in (("dense", _scores.dense), ("blocked", _scores.blocked))
        ]
    return forms


def _built(name: str, arguments: Mapping[str, Any], setting: _Setting) -> Mechanism:
    generator = torch.Generator().manual_seed(0)
    unit = MECHANISMS[name](
        model_dim=MODEL_DIM, num_heads=NUM_HEADS, max_length=setting.length, generator=generator, **arguments
    )
    return unit.to(setting.device, setting.dtype)


def _rows(
    forms: Sequence[Form],
    setting: _Setting,
    num_repeats: int,
    limits: Limits,
    roof: Roof,
    excluded: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """Measure the forms at one length; ``excluded`` keeps what became of those that are measured no further."""
    inputs = _inputs(setting)
    calls = {
        form.name: partial(_call, form.call, inputs[form.takes], setting.direction)
        for form in forms
        if form.name not in excluded
    }
    costs = {name: _tried(call, setting.device) for name, call in calls.items()}
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
            **_numbers(taken.get(form.name), costs.get(form.name), inputs[form.takes], setting, roof),
        }
        if status != "ok":
            excluded[form.name] = "reported"
        elif _exceeds(taken[form.name], costs[form.name], limits):
            excluded[form.name] = "over budget"


def _inputs(setting: _Setting) -> dict[Takes, tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(setting.length)

    def draw(*shape: int) -> Tensor:
        return torch.randn(setting.batch_size, *shape, generator=generator).to(setting.device, setting.dtype)

    head = (NUM_HEADS, setting.length, MODEL_DIM // NUM_HEADS)
    return {"layer": (draw(setting.length, MODEL_DIM),), "heads": (draw(*head), draw(*head), draw(*head))}


def _call(form: Callable[..., Tensor], inputs: tuple[Tensor, ...], direction: str) -> None:
    if direction == "forward":
        with torch.no_grad():
            form(*inputs)
    else:
        torch.autograd.backward(form(*(tensor.detach().requires_grad_() for tensor in inputs)).sum())


def _tried(call: Callable[[], None], device: torch.device) -> tuple[int, int] | None:
    """Peak memory and floating-point operations of a call; None if it runs out of memory."""
    try:
        with FlopCounterMode(display=False) as counter:
            call()
        return peak_bytes(call, device), counter.get_total_flops()
    except (torch.OutOfMemoryError, MemoryError):
        return None
    except RuntimeError as problem:
        if "can't allocate memory" not in str(problem):  # what PyTorch raises on a CPU
            raise
        return None


def _numbers(
    taken: Sequence[float] | None,
    cost: tuple[int, int] | None,
    inputs: tuple[Tensor, ...],
    setting: _Setting,
    roof: Roof,
) -> dict[str, Any]:
    names = ("median_ms", "spread", "tokens_per_s", "peak_bytes", "flops", "floor_ms", "roofline_share")
    if taken is None or cost is None:
        return dict.fromkeys(names)
    low, middle, high = (float(value) for value in np.quantile(taken, [0.25, 0.5, 0.75]))
    peak, flops = cost
    width = setting.batch_size * setting.length * MODEL_DIM * inputs[0].element_size()
    moved = width * (len(inputs) + 1) * (1 if setting.direction == "forward" else 3)
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
