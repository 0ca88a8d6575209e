"""Measures the cost of attention as sequences grow: time, memory, and the distance from the floor of its arithmetic.

Time is the median of repeats in which all forms and lengths take turns. So a slow minute changes neither the gain of a
form nor the growth of the time. On a CPU it is the time that the process has a core. Memory is the peak of what tensors
held beyond the inputs. The floor is what the form's arithmetic, or its inputs and outputs, would take at the rates that
the device reaches in a large product and a large copy. Triton's arithmetic is not counted, so a kernel is taken to do
that of the PyTorch form in their place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from synthbench.bench.forms import (
    DIRECTIONS,
    FORMS,
    MODEL_DIM,
    NUM_HEADS,
    Form,
    Inputs,
    Setting,
    built,
    call_of,
    dtype_of,
    forms_of,
    inputs_of,
)
from synthbench.bench.instruments import (
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
from synthbench.bench.rows import Row, Table
from synthbench.forms import kernels, scores, streaming
from synthbench.mechanisms import MECHANISMS, Mechanism
from synthbench.options import coerce, term_of
from synthbench.process import variable_set
from synthbench.registry import version_of

NAIVE = ("published", "dense")
"""Forms that write out what others never hold."""

FITTED_SPAN = 16
"""Exponents are fitted over the lengths from the longest down to this part of it."""
ONE_PIECE = max(streaming.BLOCK, scores.DENSE_MAX_LENGTH)
"""Up to this length mechanisms may attend in one piece, and beyond it not: exponents are fitted on one side of it."""
BRIEF_S = 0.05
"""Calls shorter than this are made once untimed before each timing: what other lengths left in caches is not theirs."""

IDENTITY = ("mechanism", "form", "direction", "length", "batch_size", "dtype")
"""Columns that tell rows of one device apart."""


@dataclass(frozen=True)
class Limits:
    """Beyond what a form is not measured at longer lengths."""

    seconds: float
    """One call."""
    gigabytes: float
    """Peak memory."""


def measure(
    mechanisms: Mapping[str, Mapping[str, Any]],
    lengths: Sequence[int],
    table: Table,
    *,
    forms: Sequence[str] = FORMS,
    offered: Callable[[Mechanism, Setting], Sequence[Form]] = forms_of,
    batch_size: int,
    num_repeats: int,
    dtype: str,
    limits: Limits,
    on_begin: Callable[[str, str], None] = lambda _mechanism, _direction: None,
) -> Iterator[Row]:
    """Rows for every mechanism, form, direction and length; what the table has is not measured.

    They come for one mechanism and direction at a time, since its forms and lengths take turns.

    A form that would exceed a limit, as it grew so far, has a row that says so and none at longer lengths. A row of an
    older version of a mechanism is measured again.

    Args:
        mechanisms: Arguments by name.
        lengths: In any order.
        table: Takes the rows; its device is the one that is measured.
        forms: Those to measure, of those that are offered.
        offered: Returns the forms of a mechanism.
        batch_size: Sequences a call.
        num_repeats: Timings; the median counts.
        dtype: Type of number.
        limits: Beyond what a form is not measured.
        on_begin: Called with a mechanism and a direction before their rows are measured.

    Raises:
        UnknownName: If a mechanism or an argument does not exist.
        UsageError: If the type is not allowed.
        StoreError: If the table cannot be written.
    """
    kind = dtype_of(dtype)
    with as_in_a_worker():
        roof = roof_of(table.device, kind)
        for name, arguments in mechanisms.items():
            term = term_of(MECHANISMS[name], coerce("mechanism", MECHANISMS[name], dict(arguments)))
            for direction in DIRECTIONS:
                on_begin(term, direction)
                course = _Course(table, limits)
                trials: list[_Trial] = []
                for length in sorted(lengths):
                    give_back_memory()
                    setting = Setting(direction, length, batch_size, table.device, kind)
                    unit = built(name, arguments, setting)
                    asked = [form for form in offered(unit, setting) if form.name in forms]
                    about = {"bench": "scaling", "mechanism": term, "mech_version": version_of(type(unit))}
                    trials += _tried(asked, setting, about, course)
                _time(trials, num_repeats)
                rows = [trial.row(roof) for trial in trials]
                for row in rows:
                    table.add(row)
                table.save()  # minutes may pass until the next ones come
                yield from rows


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
    """Compute the speed-up over the naive form at each length, and the share of its memory.

    The naive form is the published one, or scores that are all written out. It is compared with what the mechanism
    chooses by itself, and with tiles where it has them. The share is that at the longest length that both were measured
    at. Rows are of one device, batch size and type of number.
    """
    measured = sorted((row for row in rows if row["status"] == "ok"), key=lambda row: row["length"])
    by_form = {(row["mechanism"], row["direction"], row["length"], row["form"]): row for row in measured}
    pairs = [
        (slow, by_form[key])
        for slow in measured
        for fast_form in ("attend", "tiled")
        if slow["form"] in NAIVE
        and (key := (slow["mechanism"], slow["direction"], slow["length"], fast_form)) in by_form
    ]
    lengths = dict.fromkeys(str(slow["length"]) for slow, _ in pairs)
    facts: dict[tuple[str, ...], dict[str, Any]] = {}
    for slow, fast in pairs:
        about = {name: fast[name] for name in ("mechanism", "direction", "form")} | {"against": slow["form"]}
        fact = facts.setdefault(tuple(about.values()), about | dict.fromkeys(lengths))
        fact[str(slow["length"])] = slow["median_ms"] / fast["median_ms"]
        fact["memory"] = fast["peak_bytes"] / slow["peak_bytes"]
    return list(facts.values())


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
        """Return whether the table has such a row, which is then the latest."""
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
    """Cost of one call of a form."""

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
        """Give the measurement, with the share of the device's roof that was reached."""
        names = ("median_ms", "spread", "tokens_per_s", "peak_bytes", "flops", "floor_ms", "roofline_share")
        if self.cost is None:
            return {**self.about, **dict.fromkeys(names)}
        if not self.taken:
            return {**self.about, "status": "oom", **dict.fromkeys(names)}
        setting, cost = self.setting, self.cost
        low, middle, high = (float(value) for value in np.quantile(self.taken, [0.25, 0.5, 0.75]))
        tensor_bytes = setting.batch_size * setting.length * MODEL_DIM * setting.dtype.itemsize
        moved = tensor_bytes * (2 if self.form.takes == "layer" else 4) * (1 if setting.direction == "forward" else 3)
        floor = roof.floor_s(cost.flops, moved)
        tokens_per_s = setting.batch_size * setting.length / middle
        spread, share = (high - low) / middle, floor / middle
        numbers = (1e3 * middle, spread, tokens_per_s, cost.peak_bytes, cost.flops, 1e3 * floor, share)
        return {**self.about, **dict(zip(names, numbers, strict=True))}


def _tried(forms: Sequence[Form], setting: Setting, about: Row, course: _Course) -> list[_Trial]:
    """Measure once the forms that may and need be measured at one length."""
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


def _cost(form: Form, inputs: Inputs, setting: Setting) -> _Cost:
    call = call_of(form, inputs, setting)
    counted = call if form.counted is None else call_of(replace(form, call=form.counted), inputs, setting)
    with variable_set(kernels.SWITCH, "off"):  # only PyTorch's own operations can be counted
        flops = flops_of(counted)
    if setting.device.type == "cuda":
        call()  # compiles a kernel
    return _Cost(peak_bytes(call, setting.device), flops, seconds(call, setting.device))


def _fitted(rows: Sequence[Mapping[str, Any]], cost: str) -> float | None:
    return exponent([row["length"] for row in rows], [float(row[cost]) for row in rows]) if len(rows) > 1 else None
