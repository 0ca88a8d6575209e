"""Comparisons at equal size: widths and feature counts that meet a number of parameters or of state elements."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import torch

from synthbench.blocks import conv_elements
from synthbench.errors import UnknownName, UsageError
from synthbench.mechanisms import MECHANISMS, Attention, Mechanism, mean_state, num_parameters
from synthbench.options import absent_values, coerce, options_of, term_of
from synthbench.registry import CONTROL
from synthbench.results.schema import join_match, split_match
from synthbench.suites import Suite
from synthbench.training.cell import Cell

Quantity = Literal["params", "state"]

TOLERANCE = 0.05
"""Tolerance of the result, as a part of the target."""
LARGEST = 4096
"""Width or count beyond which no solution is looked for."""

MOST_CHANGES = 2
"""Numbers that are changed at most."""

_WORDS: dict[Quantity, str] = {"params": "parameters", "state": "state elements"}


def parse_match(text: str) -> tuple[Quantity, int | None]:
    """Read ``params``, ``state`` or ``state=4096``; without a number the target is that of the suite's first mechanism.

    Raises:
        UnknownName: If the quantity is neither.
        UsageError: If the number is not a positive whole one.
    """
    quantity, equals, number = text.partition("=")
    if quantity not in get_args(Quantity):
        raise UnknownName("quantity to match", quantity, get_args(Quantity))
    if equals and not (number.isdecimal() and int(number) > 0):
        raise UsageError(f"match is {text!r}; allowed: {quantity}, or {quantity}= and a whole number from 1")
    return ("params" if quantity == "params" else "state"), int(number) if equals else None


def all_matched(cells: Sequence[Cell], text: str) -> list[Cell]:
    """The cells at the size that ``--match`` asks for; controls, which have no size, stay as they are.

    Raises:
        UnknownName: If the quantity is neither.
        UsageError: If the text is malformed, or some cannot have this size; the message says which mechanisms.
    """
    parse_match(text)
    matched_cells: list[Cell] = []
    problems: dict[str, str] = {}
    for cell in cells:
        try:
            matched_cells.append(cell if cell.mechanism.family == CONTROL else matched_as(cell, text))
        except UsageError as problem:
            problems.setdefault(cell.mechanism_name, str(problem))
    if problems:
        without = ",".join(f"!{name}" for name in problems)
        raise UsageError(f"{'; '.join(problems.values())}; --mech '...,{without}' leaves out what cannot")
    return matched_cells


def matched_as(cell: Cell, text: str) -> Cell:
    """The cell at the size that ``--match`` asks for. It says so: rows stay together, whatever was changed in each."""
    resized = matched(cell, *_target(cell, text))
    return replace(
        resized, match=join_match(text, term_of(cell.mechanism, cell.resolved_mechanism_arguments, is_complete=True))
    )


def misses(cell: Cell, suite: Suite) -> str:
    """Say how a cell misses the target that it names, in its suite; empty if it does not."""
    quantity, target = _target(replace(cell, suite=suite), split_match(cell.match or "")[0])
    size = size_of(cell, quantity)
    if abs(size - target) <= TOLERANCE * target:
        return ""
    return f"it has {size} {_WORDS[quantity]}, not {target} within {TOLERANCE:.0%}"


def _target(cell: Cell, text: str) -> tuple[Quantity, int]:
    quantity, number = parse_match(text)
    return quantity, number or size_of(reference_of(cell), quantity)


def size_of(cell: Cell, quantity: Quantity) -> int:
    """Trained values of the whole model, or numbers that one layer keeps after the sequence that is trained on."""
    if quantity == "params":
        return num_parameters(cell.model(torch.Generator()))
    states = [
        _state_elements(unit, tuple(sorted({**fields, "max_length": cell.length}.items())), cell.length)
        for unit, fields in cell.layers
    ]
    _, around = cell.block
    kept = conv_elements(int(around.get("conv", 0)), str(around.get("conv_on", "")), cell.suite.model.model_dim)
    return kept + mean_state(states)


@cache
def _state_elements(mechanism: type[Mechanism], fields: tuple[tuple[str, Any], ...], length: int) -> int:
    return mechanism(**dict(fields)).state_elements(length)


def matched(cell: Cell, quantity: Quantity, target: int) -> Cell:
    """Find a cell within 5 % of the target size, changing one or two numbers if necessary.

    A cell that fits is returned unchanged. Otherwise, the mechanism's integer arguments that change the size are tried
    in order of declaration, and the model's width, in steps that the heads divide. To match a state, arguments are
    tried first, because they change only the mechanism. To match parameters, the width is tried first, because an
    argument such as the steps of ``deltaproduct`` makes a different mechanism. If no change alone reaches the target,
    the nearest is kept and another number is changed.

    Raises:
        UsageError: If nothing fits; the message gives the nearest size.
    """

    def distance(candidate: Cell) -> int:
        return abs(size_of(candidate, quantity) - target)

    nearest = cell
    for _ in range(MOST_CHANGES):
        for number in _numbers(nearest, quantity):
            if distance(nearest) <= TOLERANCE * target:
                return nearest
            nearest = min([nearest, *_nearest(number, quantity, target)], key=distance)
    if distance(nearest) > TOLERANCE * target:
        raise UsageError(
            f"mechanism {cell.mechanism_name!r} cannot have {target} {_WORDS[quantity]} within {TOLERANCE:.0%} on task "
            f"{cell.task_name!r}: the nearest is {size_of(nearest, quantity)}"
        )
    return nearest


def reference_of(cell: Cell) -> Cell:
    """The cell of the suite's first mechanism on the same task, whose size is the target if none is given."""
    name, arguments = next(iter(cell.suite.mechanisms.items()))
    return replace(cell, mechanism_name=name, mechanism_arguments=coerce("mechanism", MECHANISMS[name], arguments))


class Number(NamedTuple):
    """A number of a cell that can be changed: what it is, and the cell with another value."""

    present: int
    changed: Callable[[int], Cell]


def _numbers(cell: Cell, quantity: Quantity) -> Iterator[Number]:
    step = cell.suite.model.num_heads if issubclass(cell.mechanism, Attention) else 1
    width = Number(cell.suite.model.model_dim // step, lambda value: _with_width(cell, value * step))
    if quantity == "params":
        yield width
    parts = absent_values(cell.mechanism)  # of its authors' layer, which stay as they are
    for name, option in options_of(cell.mechanism).items():
        if option.type is int and name not in parts:
            present = cell.resolved_mechanism_arguments.get(name, option.default)
            yield Number(int(present), lambda value, name=name: _with_argument(cell, name, value))  # type: ignore[misc]
    if quantity == "state":
        yield width


def _with_argument(cell: Cell, name: str, value: int) -> Cell:
    return replace(cell, mechanism_arguments={**cell.mechanism_arguments, name: value})


def _with_width(cell: Cell, width: int) -> Cell:
    model = cell.suite.model.model_copy(update={"model_dim": width})
    return replace(cell, suite=cell.suite.model_copy(update={"model": model}))


def _nearest(number: Number, quantity: Quantity, target: int) -> list[Cell]:
    """The cells just below and from the target as one number grows; none where the number does not change the size."""

    @cache
    def allowed(value: int) -> int:
        """The value, or the largest one below it that is allowed; 0 if there is none."""
        for lower in range(value, 0, -1):
            candidate = number.changed(lower)
            try:
                size_of(candidate, quantity)
                if quantity == "state":  # positions refuse widths too, and a state is counted without them
                    candidate.model(torch.Generator())
            except UsageError:  # out of range, odd where it must be even, and the like
                continue
            return lower
        return 0

    @cache
    def size(value: int) -> int:
        value_allowed = allowed(value)
        return size_of(number.changed(value_allowed), quantity) if value_allowed else 0

    if size(number.present) == size(2 * number.present):
        return []
    largest = 1
    while largest < LARGEST and size(largest) < target:
        largest *= 2
    if size(largest) < target:
        return [number.changed(allowed(largest))]
    first_from = bisect_left(range(largest + 1), target, lo=1, key=size)
    return [number.changed(value) for value in {allowed(first_from - 1), allowed(first_from)} if value]
