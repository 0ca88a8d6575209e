"""What attention costs as sequences grow: time, memory, and how near it comes to the floor of its arithmetic.

``layer`` is the whole mechanism with its projections, ``attend`` what it does between them from q, k, v to the outputs
of the heads, both in the form that it chooses itself. The other forms compute the same as ``attend``:

===============  =====================================================================================================
form             of features
===============  =====================================================================================================
``gram``         naive: the masked matrix of kernel values
``recurrent``    one token at a time, as a decoder goes
``chunked``      linear in the length, features of all tokens in memory
``streamed``     the same with features made block by block, and again in the backward pass
``kernel``       Triton, on a GPU
``fla``          kernels of the package of that name, where it is installed, on features of all tokens in memory
``published``    as the papers' code has it: prefix sums, or a loop over nodes and chunks
===============  =====================================================================================================

Of scores there are ``dense``, ``blocked``, ``tiled``, ``kernel`` and, on a GPU, PyTorch's FlexAttention, ``flex``. Time
is the median of repeats in which all forms and all lengths take turns, so that a slow minute changes neither what one
form gains over another nor how fast the time grows; on a CPU it is the time that the process has a core. Memory is the
peak of what tensors held beyond the inputs.
The floor is what the form's arithmetic, or its inputs and outputs, would take at the rates that the device reaches in a
large product and a large copy; Triton's arithmetic is not counted, so a kernel and ``flex`` are taken to do that of the
PyTorch form in their place, ``fla`` that of chunks.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from synthbench.bench import flash_linear_attention as fla
from synthbench.bench.instruments import (
    Call,
    Roof,
    as_in_a_worker,
    exponent,
    flops_of,
    give_back_memory,
    peak_bytes,
    roof_of,
    seconds,
    unless_out_of_memory,
)
from synthbench.bench.published import published
from synthbench.bench.rows import Row, Table
from synthbench.errors import UnknownName, UsageError
from synthbench.knobs import coerce, term_of
from synthbench.mechanisms import MECHANISMS, _flex, _linear, _scores, _streaming, _yat_tiles
from synthbench.mechanisms.base import Attention, FeatureAttention, Mechanism, ScoreAttention
from synthbench.registry import version_of

MODEL_DIM, NUM_HEADS = 256, 8

DIRECTIONS = ("forward", "forward+backward")
FORMS = (
    *("layer", "attend"),
    *("gram", "recurrent", "chunked", "streamed", "dense", "blocked", "tiled", "flex", "kernel", "fla", "published"),
)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}

NAIVE = ("published", "dense")
"""Forms that write out what others never hold."""

FITTED_SPAN = 16
"""Exponents are fitted over the lengths from the longest down to this part of it."""
ONE_PIECE = max(_streaming.BLOCK, _scores.DENSE_MAX_LENGTH)
"""Up to this length mechanisms may attend in one piece, and beyond it not: exponents are fitted on one side of it."""
BRIEF_S = 0.05
"""Calls shorter than this are made once untimed before each timing: what other lengths left in caches is not theirs."""

IDENTITY = ("mechanism", "form", "direction", "length", "batch_size", "dtype")
"""What tells rows of one device apart."""

Takes = Literal["layer", "heads"]
Inputs = dict[Takes, tuple[Tensor, ...]]
"""What forms are called with, by what they take."""


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
    counted: Callable[..., Tensor] | None = None
    """What does the same arithmetic by PyTorch's operations, which can be counted."""


@dataclass(frozen=True)
class Setting:
    """What a form is called on."""

    direction: str
    length: int
    batch_size: int
    device: torch.device
    dtype: torch.dtype


def measure(
    mechanisms: Mapping[str, Mapping[str, Any]],
    lengths: Sequence[int],
    table: Table,
    *,
    forms: Sequence[str] = FORMS,
    batch_size: int,
    num_repeats: int,
    dtype: str,
    limits: Limits,
) -> Iterator[Row]:
    """Rows for every mechanism, form, direction and length; what the table has is not measured.

    They come for one mechanism and direction at a time, since its forms and lengths take turns.

    A form that would exceed a limit, as it grew so far, has a row that says so and none at longer lengths. A row of an
    older version of a mechanism is measured again.

    Args:
        mechanisms: Arguments by name.
        lengths: In any order.
        table: Takes the rows; its device is the one that is measured.
        forms: Those to measure, of those that a mechanism has.
        batch_size: Sequences a call.
        num_repeats: Timings; the median counts.
        dtype: Type of number.
        limits: Beyond what a form is not measured.

    Raises:
        UnknownName: If a mechanism, an argument or a form does not exist.
        UsageError: If the type is not allowed.
        StoreError: If the table cannot be written.
    """
    for form in forms:
        if form not in FORMS:
            raise UnknownName("form", form, FORMS)
    kind = dtype_of(dtype)
    with as_in_a_worker():
        roof = roof_of(table.device, kind)
        for name, arguments in mechanisms.items():
            term = term_of(MECHANISMS[name], coerce("mechanism", MECHANISMS[name], dict(arguments)))
            for direction in DIRECTIONS:
                course = _Course(table, limits)
                trials: list[_Trial] = []
                for length in sorted(lengths):
                    give_back_memory()
                    setting = Setting(direction, length, batch_size, table.device, kind)
                    unit = built(name, arguments, setting)
                    found = [form for form in forms_of(unit, setting) if form.name in forms]
                    about = {"bench": "scaling", "mechanism": term, "mech_version": version_of(type(unit))}
                    trials += _tried(found, setting, about, course)
                _time(trials, num_repeats)
                for trial in trials:
                    row = trial.row(roof)
                    table.add(row)
                    yield row


def dtype_of(name: str) -> torch.dtype:
    """The type of number with a name.

    Raises:
        UsageError: If it is not allowed.
    """
    if name not in DTYPES:
        raise UsageError(f"dtype is {name!r}; allowed: {', '.join(DTYPES)}")
    return DTYPES[name]


def summary(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For every mechanism, form and direction the longest length, its cost, and the exponents of time and memory.

    Rows are of one device, batch size and type of number.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["mechanism"], row["form"], row["direction"]), []).append(row)
    facts = []
    for (mechanism, form, direction), group in groups.items():
        by_length = sorted(group, key=lambda row: row["length"])
        measured = [row for row in by_length if row["status"] == "ok"]
        if not measured:
            continue
        longest = measured[-1]
        fitted = [
            row
            for row in measured
            if row["length"] * FITTED_SPAN >= longest["length"]
            and (row["length"] > ONE_PIECE) == (longest["length"] > ONE_PIECE)
        ]
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
                "ended": by_length[-1]["status"],
            }
        )
    return facts


def against_naive(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How many times faster than its naive form a mechanism attends at each length, and its share of its memory.

    The naive form is the published one, or scores that are all written out; it is compared with what the mechanism
    chooses by itself, and with tiles where it has them. The share is that at the longest length that both were measured
    at. Rows are of one device, batch size and type of number.
    """
    measured = sorted((row for row in rows if row["status"] == "ok"), key=lambda row: row["length"])
    by_form = {(row["mechanism"], row["direction"], row["length"], row["form"]): row for row in measured}
    pairs = [
        (slow, by_form[key])
        for slow in measured
        for own in ("attend", "tiled")
        if slow["form"] in NAIVE and (key := (slow["mechanism"], slow["direction"], slow["length"], own)) in by_form
    ]
    lengths = dict.fromkeys(str(slow["length"]) for slow, _ in pairs)
    facts: dict[tuple[str, ...], dict[str, Any]] = {}
    for slow, fast in pairs:
        about = {name: fast[name] for name in ("mechanism", "direction", "form")} | {"against": slow["form"]}
        fact = facts.setdefault(tuple(about.values()), about | dict.fromkeys(lengths))
        fact[str(slow["length"])] = slow["median_ms"] / fast["median_ms"]
        fact["memory"] = fast["peak_bytes"] / slow["peak_bytes"]
    return list(facts.values())


def forms_of(unit: Mechanism, setting: Setting) -> list[Form]:
    """The forms of a mechanism that the device of the setting can run; those of its heads all compute the same."""
    forms = [Form("layer", "layer", unit.forward)]
    if not isinstance(unit, Attention):
        return forms
    forms.append(Form("attend", "heads", unit.attend))
    if isinstance(unit, FeatureAttention):
        guard: dict[str, Any] = {"guard": unit.guard, "delta": unit.delta}

        def by_factors(form: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return form(unit.factors(q, "query"), unit.factors(k, "key"), v, **guard)

        forms += [
            Form("gram", "heads", partial(by_factors, _linear.gram)),
            Form("recurrent", "heads", partial(by_factors, _linear.recurrent)),
            Form("chunked", "heads", partial(by_factors, _linear.chunked)),
            Form("streamed", "heads", partial(_streaming.streamed, unit.factors, **guard)),
            Form("published", "heads", partial(published, unit)),
        ]
    elif isinstance(unit, ScoreAttention):
        forms += [
            Form(name, "heads", partial(form, unit.scores, unit.normaliser, power=unit.softermax_power))
            for name, form in (("dense", _scores.dense), ("blocked", _scores.blocked))
        ]
        if (tiled := _yat_tiles.of(unit)) is not None:
            forms.append(Form("tiled", "heads", tiled))
        if _flex.runs_on(setting.device) and (flex := _flex.of(unit, _flex.compiled())) is not None:
            forms.append(Form("flex", "heads", flex, counted=_named("blocked", forms).call))
    if isinstance(unit, FeatureAttention | ScoreAttention):
        zero = torch.zeros((), device=setting.device, dtype=setting.dtype)
        sample = zero.expand(1, NUM_HEADS, setting.length, unit.head_dim)  # takes no memory
        kernel = unit.gpu_kernel(sample, sample, sample)
        if kernel is not None:
            by_torch = _named("streamed" if isinstance(unit, FeatureAttention) else "blocked", forms)
            forms.append(Form("kernel", "heads", kernel, counted=by_torch.call))
        if isinstance(unit, FeatureAttention) and fla.serves(sample):
            forms.append(Form("fla", "heads", partial(fla.attend, unit), counted=partial(fla.counted, unit)))
    return forms


def _named(name: str, forms: Iterable[Form]) -> Form:
    return next(form for form in forms if form.name == name)


def built(name: str, arguments: Mapping[str, Any], setting: Setting) -> Mechanism:
    """A mechanism of the measured width, for sequences of the setting's length."""
    unit = MECHANISMS[name]
    given: dict[str, Any] = coerce("mechanism", unit, dict(arguments))
    mechanism = unit(
        model_dim=MODEL_DIM,
        num_heads=NUM_HEADS,
        max_length=setting.length,
        generator=torch.Generator().manual_seed(0),
        **given,
    )
    return mechanism.to(setting.device, setting.dtype)


class _Course:
    """One mechanism in one direction over growing lengths: what its forms may still be measured at."""

    def __init__(self, table: Table, limits: Limits) -> None:
        self.table, self.limits = table, limits
        self.latest: dict[str, Row] = {}

    def status(self, form: str) -> str | None:
        """``ok`` if a form may be measured, ``over budget`` if not, None if there is nothing more to say."""
        latest = self.latest.get(form)
        if latest is None:
            return "ok"
        if latest["status"] != "ok":
            return None
        # As if the cost grew with the square, should the length double.
        is_too_slow = 4 * latest["median_ms"] > 1e3 * self.limits.seconds
        return "over budget" if is_too_slow or 4 * latest["peak_bytes"] > self.limits.gigabytes * 2**30 else "ok"

    def has(self, row: Row) -> bool:
        """Whether the table has such a row, which is then the latest."""
        known = self.table.find(row)
        # What limits said they may say no more.
        if known is None or (known["status"] == "over budget" and row["status"] != known["status"]):
            return False
        self.latest[row["form"]] = known
        return True

    def take(self, trial: "_Trial") -> None:
        """Take in what was tried, which is then the latest of its form."""
        cost = trial.cost
        spent = {} if cost is None else {"median_ms": 1e3 * cost.seconds, "peak_bytes": cost.peak_bytes}
        self.latest[trial.form.name] = {**trial.about, **spent}


@dataclass(frozen=True)
class _Cost:
    """What one call of a form takes."""

    peak_bytes: int
    flops: int
    seconds: float
    """Of one call, before all lengths take turns."""


@dataclass
class _Trial:
    """A form at one length in one direction."""

    form: Form
    setting: Setting
    about: Row
    """Its row without numbers."""
    cost: _Cost | None
    """None if it is not measured."""
    taken: list[float] = field(default_factory=list)
    """Seconds of the calls that count."""

    def row(self, roof: Roof) -> dict[str, Any]:
        """What was found, with the share of the device's roof that was reached."""
        names = ("median_ms", "spread", "tokens_per_s", "peak_bytes", "flops", "floor_ms", "roofline_share")
        if self.cost is None:
            return {**self.about, **dict.fromkeys(names)}
        if not self.taken:
            return {**self.about, "status": "oom", **dict.fromkeys(names)}
        setting, cost = self.setting, self.cost
        low, middle, high = (float(value) for value in np.quantile(self.taken, [0.25, 0.5, 0.75]))
        one = setting.batch_size * setting.length * MODEL_DIM * setting.dtype.itemsize
        moved = one * (2 if self.form.takes == "layer" else 4) * (1 if setting.direction == "forward" else 3)
        floor = roof.floor_s(cost.flops, moved)
        tokens_per_s = setting.batch_size * setting.length / middle
        spread, share = (high - low) / middle, floor / middle
        numbers = (1e3 * middle, spread, tokens_per_s, cost.peak_bytes, cost.flops, 1e3 * floor, share)
        return {**self.about, **dict(zip(names, numbers, strict=True))}


def _tried(forms: Sequence[Form], setting: Setting, about: Row, course: _Course) -> list[_Trial]:
    """What the forms that may and need be measured at one length take once."""
    wanted = {}
    for form in forms:
        status = course.status(form.name)
        begun = {**about, **_identity(form, setting), "status": status}
        if status is not None and not course.has(begun):
            wanted[form.name] = (form, begun)
    tried = {name: form for name, (form, begun) in wanted.items() if begun["status"] == "ok"}
    inputs = (unless_out_of_memory(partial(inputs_of, setting)) if tried else None) or {}
    trials = []
    for name, (form, begun) in wanted.items():
        cost = unless_out_of_memory(partial(_cost, form, inputs, setting)) if inputs and name in tried else None
        status = "oom" if name in tried and cost is None else begun["status"]
        trial = _Trial(form, setting, {**begun, "status": status}, cost)
        course.take(trial)
        trials.append(trial)
    return trials


def _time(trials: Sequence[_Trial], num_repeats: int) -> None:
    """Time the calls of what can be measured; lengths take turns, and at each length forms."""
    can_run = [trial for trial in trials if trial.cost is not None]
    for _ in range(num_repeats):
        for setting, group in groupby(can_run, key=lambda trial: trial.setting):
            inputs = unless_out_of_memory(partial(inputs_of, setting)) or {}
            for trial in group if inputs else ():
                seconds_taken = unless_out_of_memory(partial(_turn, trial, inputs))
                trial.taken += [] if seconds_taken is None else [seconds_taken]


def _turn(trial: _Trial, inputs: Inputs) -> float:
    """Seconds of one call, with a call before it that does not count if it is brief."""
    call = call_of(trial.form, inputs, trial.setting)
    if trial.cost is not None and trial.cost.seconds < BRIEF_S:
        call()
    return seconds(call, trial.setting.device)


def _identity(form: Form, setting: Setting) -> dict[str, Any]:
    return {
        "form": form.name,
        "takes": form.takes,
        "direction": setting.direction,
        "length": setting.length,
        "batch_size": setting.batch_size,
        "heads": NUM_HEADS,
        "head_dim": MODEL_DIM // NUM_HEADS,
        "dtype": str(setting.dtype).removeprefix("torch."),
    }


def inputs_of(setting: Setting) -> Inputs:
    """Random tokens, and random queries, keys and values."""
    generator = torch.Generator(setting.device).manual_seed(setting.length)
    about: dict[str, Any] = {"generator": generator, "device": setting.device, "dtype": setting.dtype}

    def draw(*shape: int) -> Tensor:
        return torch.randn(setting.batch_size, *shape, **about)

    head = (NUM_HEADS, setting.length, MODEL_DIM // NUM_HEADS)
    return {"layer": (draw(setting.length, MODEL_DIM),), "heads": (draw(*head), draw(*head), draw(*head))}


def call_of(form: Form, inputs: Inputs, setting: Setting) -> Call:
    """A call of a form on some inputs, in the direction of the setting."""
    given = inputs[form.takes]

    def forward() -> None:
        with torch.no_grad():
            form.call(*given)

    def forward_and_backward() -> None:
        torch.autograd.backward(form.call(*(tensor.detach().requires_grad_() for tensor in given)).sum())

    return forward if setting.direction == "forward" else forward_and_backward


def _cost(form: Form, inputs: Inputs, setting: Setting) -> _Cost:
    call = call_of(form, inputs, setting)
    counted = call if form.counted is None else call_of(replace(form, call=form.counted), inputs, setting)
    with _without_kernels():
        flops = flops_of(counted)
    if setting.device.type == "cuda":
        call()  # compiles a kernel
    return _Cost(peak_bytes(call, setting.device), flops, seconds(call, setting.device))


@contextmanager
def _without_kernels() -> Iterator[None]:
    """Let mechanisms keep to PyTorch's operations, which can be counted."""
    before = os.environ.get("SYNTHBENCH_KERNELS")
    os.environ["SYNTHBENCH_KERNELS"] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ["SYNTHBENCH_KERNELS"]
        else:
            os.environ["SYNTHBENCH_KERNELS"] = before


def _fitted(rows: Sequence[Mapping[str, Any]], cost: str) -> float | None:
    return exponent([row["length"] for row in rows], [float(row[cost]) for row in rows]) if len(rows) > 1 else None
