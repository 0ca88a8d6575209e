"""Cost of attention by sequence length: time, memory, and a lower bound of the time for comparison.

A form is one way to compute a mechanism. Time is the median of repeats in which all forms and lengths take turns. So a
slow minute distorts neither the comparison of forms nor the growth with the length. On a CPU, time is the CPU time of
the process. Memory is the peak memory of tensors, without the inputs. The lower bound is the longer of two times: the
time for a form's arithmetic, and the time for moving its inputs and outputs. Both times assume the rates that the
device reaches in a large matrix product and a large copy. The operations of a Triton kernel cannot be counted, so the
operations of the corresponding PyTorch form are used.
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
"""Naive forms, which hold large arrays in memory as a whole; other forms compute these arrays piece by piece."""

FITTED_SPAN = 16
"""Exponents are fitted to lengths of at least the longest length divided by this number."""
ONE_PIECE = max(streaming.BLOCK, scores.DENSE_MAX_LENGTH)
"""Largest length at which mechanisms may compute attention at once instead of block by block.

Exponents are fitted only to lengths on the same side of this limit as the longest length.
"""
BRIEF_S = 0.05
"""Longest duration, in seconds, of a brief call; before each timing, a brief call is made once untimed to fill the
caches."""

IDENTITY = ("mechanism", "form", "direction", "length", "batch_size", "dtype")
"""Columns that identify a row among the rows of one device."""


@dataclass(frozen=True)
class Limits:
    """Limits of a call; a form (way to compute a mechanism) that is expected to exceed a limit is not measured."""

    seconds: float
    """Limit on the time of one call, in seconds."""
    gigabytes: float
    """Limit on peak memory, in GiB."""


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
    """Measure the time and memory of every mechanism, form, direction and length, and yield the new rows.

    A form is one way to compute a mechanism; a direction is the forward pass, either alone or with the backward pass.
    Forms and lengths are timed in turn, so all rows of one mechanism and direction are yielded together.

    From one length to the next, time and memory are expected to quadruple. If this would exceed a limit, the form gets
    a row that says so, and no rows at longer lengths. Rows already in the table are not measured again, unless the
    mechanism's version has changed.

    Args:
        mechanisms: Options of each mechanism, by the mechanism's name.
        lengths: Sequence lengths in tokens, in any order.
        table: Table for the rows; its device is measured.
        forms: Names of the forms to measure, where the mechanism has them.
        offered: Function that lists the forms of a mechanism.
        batch_size: Sequences per call.
        num_repeats: Number of timings of a call; the median is reported.
        dtype: Name of the number type, such as ``float32``.
        limits: Limits on the time and memory of one call.
        on_begin: Function that is called with the names of mechanism and direction before they are measured.

    Raises:
        UnknownName: If a mechanism or an option does not exist.
        UsageError: If the number type is not allowed.
        StoreError: If the table cannot be written.
    """
    kind = dtype_of(dtype)
    with as_in_a_worker():
        roof = roof_of(table.device, kind)
        for name, arguments in mechanisms.items():
            term = term_of(MECHANISMS[name], coerce("mechanism", MECHANISMS[name], dict(arguments)))
            for direction in DIRECTIONS:
                on_begin(term, direction)
                latest: dict[str, Row] = {}
                trials: list[_Trial] = []
                for length in sorted(lengths):
                    give_back_memory()
                    setting = Setting(direction, length, batch_size, table.device, kind)
                    unit = built(name, arguments, setting)
                    asked = [form for form in offered(unit, setting) if form.name in forms]
                    about = {"bench": "scaling", "mechanism": term, "mech_version": version_of(type(unit))}
                    trials += _tried(asked, setting, about, latest, table, limits)
                _time(trials, num_repeats)
                yield from [table.add(trial.row(roof)) for trial in trials]  # all are in the table before the first


def summary(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the longest length, its cost and exponents of growth, for each mechanism, form and direction measured.

    A form is a way to compute a mechanism. A direction is the forward pass alone or with the backward pass.
    Time and memory are fitted as powers of the length, with these exponents. All rows must have the same device, batch
    size and number type.
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
    """Compare forms (ways to compute a mechanism) with the naive form: speed-up at each length, and fraction of memory.

    The naive form is ``published`` or ``dense``, whichever the mechanism has. It is compared with the form ``attend``
    and, if there is one, ``tiled``. Memory is compared at the longest length at which both forms were measured. All
    rows must have the same device, batch size and number type.
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


@dataclass(frozen=True)
class _Cost:
    """Cost of one call of a form (way to compute a mechanism)."""

    peak_bytes: int
    flops: int
    seconds: float
    """Seconds of one call, measured before all lengths take turns."""


@dataclass
class _Trial:
    """A form (way to compute a mechanism) at one length, for the forward pass alone or with the backward pass."""

    form: Form
    setting: Setting
    about: Row
    """The row of the trial, without measured numbers."""
    cost: _Cost | None
    """Cost of one call; None if the form is not measured."""
    taken: list[float] = field(default_factory=list)
    """Seconds of each timed call."""

    def row(self, roof: Roof) -> dict[str, Any]:
        """Return the row of measurements, with a lower bound of the time and its ratio to the median time."""
        names = ("median_ms", "spread", "tokens_per_s", "peak_bytes", "flops", "floor_ms", "roofline_share")
        if self.cost is None:
            return {**self.about, **dict.fromkeys(names)}
        if not self.taken:
            return {**self.about, "status": "oom", **dict.fromkeys(names)}
        setting, cost = self.setting, self.cost
        low, middle, high = (float(value) for value in np.quantile(self.taken, [0.25, 0.5, 0.75]))
        tensor_bytes = setting.batch_size * setting.length * MODEL_DIM * setting.dtype.itemsize
        moved = tensor_bytes * (2 if self.form.takes == "layer" else 4) * (1 if setting.direction == "forward" else 3)
        floor = max(cost.flops / roof.flops_per_s, moved / roof.bytes_per_s)
        tokens_per_s = setting.batch_size * setting.length / middle
        spread, share = (high - low) / middle, floor / middle
        numbers = (1e3 * middle, spread, tokens_per_s, cost.peak_bytes, cost.flops, 1e3 * floor, share)
        return {**self.about, **dict(zip(names, numbers, strict=True))}


def _tried(
    forms: Sequence[Form], setting: Setting, about: Row, latest: dict[str, Row], table: Table, limits: Limits
) -> list[_Trial]:
    """Make a trial of each form at one length, unless its row is in the table or the form failed at a shorter length.

    A form is a way to compute a mechanism. The cost of one call is measured unless it is expected to exceed a limit.
    The latest row of each form, at the greatest length so far, is noted in ``latest``.
    """
    trials: list[_Trial] = []
    inputs: Inputs | None = None
    for form in forms:
        status = _status(latest.get(form.name), setting, limits)
        begun = {
            **about,
            "form": form.name,
            "takes": form.takes,
            "direction": setting.direction,
            "length": setting.length,
            "batch_size": setting.batch_size,
            "heads": NUM_HEADS,
            "head_dim": MODEL_DIM // NUM_HEADS,
            "dtype": str(setting.dtype).removeprefix("torch."),
            "status": status,
        }
        if status is None:
            continue
        known = table.find(begun)
        # A row that was over earlier limits may be within the present ones.
        if known is not None and (known["status"] != "over budget" or status == "over budget"):
            latest[form.name] = known
            continue
        cost = None
        if status == "ok":
            inputs = inputs or unless_out_of_memory(partial(inputs_of, setting))
            cost = unless_out_of_memory(partial(_cost, form, inputs, setting)) if inputs else None
        trial = _Trial(form, setting, begun if cost or status != "ok" else {**begun, "status": "oom"}, cost)
        spent = {} if cost is None else {"median_ms": 1e3 * cost.seconds, "peak_bytes": cost.peak_bytes}
        latest[form.name] = {**trial.about, **spent}
        trials.append(trial)
    return trials


def _status(latest: Row | None, setting: Setting, limits: Limits) -> str | None:
    """Return ``ok`` if a form may be measured, or ``over budget`` if it is expected to exceed a limit.

    At the first length, the limit on memory is compared with the inputs: a tensor of token vectors, and queries, keys
    and values. Return None if the form's latest row, at a shorter length, was not ``ok``.
    """
    if latest is None:
        input_bytes = 4 * setting.batch_size * setting.length * MODEL_DIM * setting.dtype.itemsize
        return "over budget" if input_bytes > limits.gigabytes * 2**30 else "ok"
    if latest["status"] != "ok":
        return None
    # This assumes that the cost grows with the square of the length, and that the length doubles.
    is_too_slow = 4 * latest["median_ms"] > 1e3 * limits.seconds
    return "over budget" if is_too_slow or 4 * latest["peak_bytes"] > limits.gigabytes * 2**30 else "ok"


def _time(trials: Sequence[_Trial], num_repeats: int) -> None:
    """Time the trials (each a form at one length) that can run; in each repeat, every trial takes one turn."""
    can_run = [trial for trial in trials if trial.cost is not None]
    for _ in range(num_repeats):
        for setting, group in groupby(can_run, key=lambda trial: trial.setting):
            inputs = unless_out_of_memory(partial(inputs_of, setting)) or {}
            for trial in group if inputs else ():
                seconds_taken = unless_out_of_memory(partial(_turn, trial, inputs))
                trial.taken += [] if seconds_taken is None else [seconds_taken]


def _turn(trial: _Trial, inputs: Inputs) -> float:
    """Time one call of a trial (a form at one length); if the call is brief, make an untimed call before it."""
    call = call_of(trial.form, inputs, trial.setting)
    if trial.cost is not None and trial.cost.seconds < BRIEF_S:
        call()
    return seconds(call, trial.setting.device)


def _cost(form: Form, inputs: Inputs, setting: Setting) -> _Cost:
    call = call_of(form, inputs, setting)
    counted = call if form.counted is None else call_of(replace(form, call=form.counted), inputs, setting)
    with variable_set(kernels.SWITCH, "off"):  # only PyTorch's own operations can be counted
        flops = flops_of(counted)
    if setting.device.type == "cuda":
        call()  # compiles a kernel
    return _Cost(peak_bytes(call, setting.device), flops, seconds(call, setting.device))


def _fitted(rows: Sequence[Mapping[str, Any]], cost: str) -> float | None:
    """Estimate the exponent with which a cost grows with the length, by fitting a line to the logarithms of both."""
    if len(rows) < 2:
        return None
    slope, _ = np.polyfit(np.log([row["length"] for row in rows]), np.log([row[cost] for row in rows]), deg=1)
    return float(slope)
