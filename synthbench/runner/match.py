"""Changes the width or options of models until all have about the same number of parameters or state elements."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple, get_args

import torch

from synthbench.blocks import conv_elements
from synthbench.errors import UnknownName, UsageError
from synthbench.mechanisms import MECHANISMS, Attention, Mechanism, mean_state, num_parameters
from synthbench.options import absent_values, coerce, options_of, term_of
from synthbench.registry import CONTROL
from synthbench.results.schema import split_match
from synthbench.suites import Suite
from synthbench.training.cell import Cell

Quantity = Literal["params", "state"]

TOLERANCE = 0.05
"""Allowed deviation from the target size, as a fraction of it."""
LARGEST = 4096
"""Largest width or argument that is tried."""

MOST_CHANGES = 2
"""Limit on how many numbers (arguments or the width) are changed."""

_WORDS: dict[Quantity, str] = {"params": "parameters", "state": "state elements"}


def parse_match(text: str) -> tuple[Quantity, int | None]:
    """Parse a value of ``--match`` into a quantity and a target: ``state=4096`` gives ``state`` and 4096.

    Without a number, None is returned for the target; it stands for the size of the suite's first mechanism.

    Raises:
        UnknownName: If the quantity is neither ``params`` nor ``state``.
        UsageError: If the number is not a positive integer.
    """
    quantity, equals, number = text.partition("=")
    if quantity not in get_args(Quantity):
        raise UnknownName("quantity to match", quantity, get_args(Quantity))
    if equals and not (number.isdecimal() and int(number) > 0):
        raise UsageError(f"match is {text!r}; allowed: {quantity}, or {quantity}= and a whole number from 1")
    return ("params" if quantity == "params" else "state"), int(number) if equals else None


def all_matched(cells: Sequence[Cell], text: str) -> list[Cell]:
    """Resize the models of cells (task × mechanism) to a size such as ``state=4096``, a value of ``--match``.

    Mechanisms of the family ``control`` keep their size: they are references without learned mixing of tokens.

    Raises:
        UnknownName: If the text names neither ``params`` nor ``state``.
        UsageError: If the text is malformed, or some mechanisms cannot be resized to this size; the message names them.
    """
    parse_match(text)
    matched_cells: list[Cell] = []
    problems: dict[str, str] = {}
    for cell in cells:
        try:
            matched_cells.append(cell if cell.mechanism.family == CONTROL else matched(cell, text))
        except UsageError as problem:
            problems.setdefault(cell.mechanism_name, str(problem))
    if problems:
        without = ",".join(f"!{name}" for name in problems)
        raise UsageError(f"{'; '.join(problems.values())}; --mech '...,{without}' leaves out what cannot")
    return matched_cells


def misses(cell: Cell, suite: Suite) -> str:
    """Return a text about the size of a cell's model if that size misses the target in ``cell.match`` by more than 5 %.

    Otherwise, the text is empty. If ``cell.match`` has no number, the target is the size of the first mechanism in
    ``suite``.
    """
    quantity, target = target_of(replace(cell, suite=suite), split_match(cell.match or "")[0])
    size = size_of(cell, quantity)
    if abs(size - target) <= TOLERANCE * target:
        return ""
    return f"it has {size} {_WORDS[quantity]}, not {target} within {TOLERANCE:.0%}"


def target_of(cell: Cell, text: str) -> tuple[Quantity, int]:
    """Return the quantity and the target that ``text``, a value of ``--match``, means for a cell (task × mechanism).

    If the text has no number, the target is the size of the suite's first mechanism on the same task.
    """
    quantity, number = parse_match(text)
    if number is not None:
        return quantity, number
    name, given = next(iter(cell.suite.mechanisms.items()))
    first = replace(cell, mechanism_name=name, mechanism_arguments=coerce("mechanism", MECHANISMS[name], given))
    return quantity, size_of(first, quantity)


def size_of(cell: Cell, quantity: Quantity) -> int:
    """Return the number of parameters of a cell's model (``params``), or the state size of one layer (``state``).

    The state is measured after one training sequence. If layers differ in state size, the mean is taken.
    """
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


def matched(cell: Cell, text: str) -> Cell:
    """Resize the model of a cell (task × mechanism) to within 5 % of a size such as ``state=4096``.

    The model's width and the integer options of the mechanism may be changed, but at most two of these numbers. A model
    that already fits keeps its size. For attention, the width stays a multiple of the number of heads. The returned
    cell also records the text, a value of ``--match``, so that rows with the same value can be grouped.

    To match the number of state elements, options are tried first, in order of declaration, because they change only
    the mechanism. To match the number of parameters, the width is tried first, because a changed option may make a
    different mechanism.

    Raises:
        UsageError: If the target cannot be reached in this way; the message gives the nearest size.
    """
    quantity, target = target_of(cell, text)

    @cache
    def distance(candidate: Cell) -> int:
        return abs(size_of(candidate, quantity) - target)

    nearest = cell
    for _ in range(MOST_CHANGES):
        for number in _numbers(nearest, quantity):
            if distance(nearest) > TOLERANCE * target:
                nearest = min([nearest, *_nearest(number, quantity, target)], key=distance)
    if distance(nearest) > TOLERANCE * target:
        raise UsageError(
            f"mechanism {cell.mechanism_name!r} cannot have {target} {_WORDS[quantity]} within {TOLERANCE:.0%} on task "
            f"{cell.task_name!r}: the nearest is {size_of(nearest, quantity)}"
        )
    before = term_of(cell.mechanism, cell.resolved_mechanism_arguments, is_complete=True)
    return replace(nearest, match=f"{text} of {before}")


class Number(NamedTuple):
    """Number to change if a cell (task × mechanism) is resized: the width, or an integer option of the mechanism.

    ``present`` is its present value; ``changed`` returns a copy of the cell with a new value. For attention, the number
    that stands for the width is the width divided by the number of heads.
    """

    present: int
    changed: Callable[[int], Cell]


def _numbers(cell: Cell, quantity: Quantity) -> Iterator[Number]:
    step = cell.suite.model.num_heads if issubclass(cell.mechanism, Attention) else 1
    width = Number(cell.suite.model.model_dim // step, lambda value: with_width(cell, value * step))
    if quantity == "params":
        yield width
    parts = absent_values(cell.mechanism)  # parts of the authors' layer, which stay as they are
    for name, option in options_of(cell.mechanism).items():
        if option.type is int and name not in parts:
            present = cell.resolved_mechanism_arguments.get(name, option.default)
            yield Number(int(present), partial(_with_argument, cell, name))
    if quantity == "state":
        yield width


def _with_argument(cell: Cell, name: str, value: int) -> Cell:
    return replace(cell, mechanism_arguments={**cell.mechanism_arguments, name: value})


def with_width(cell: Cell, width: int) -> Cell:
    """Return a copy of a cell whose models have another width (model dimension)."""
    model = cell.suite.model.model_copy(update={"model_dim": width})
    return replace(cell, suite=cell.suite.model_copy(update={"model": model}))


def _nearest(number: Number, quantity: Quantity, target: int) -> list[Cell]:
    """Vary one number of a cell (task × mechanism), and return the variants nearest in size to the target.

    If possible, one variant is smaller than the target, and the other has at least the size of the target. The list is
    empty if the number has no effect on the size.
    """

    @cache
    def allowed(value: int) -> int:
        """Return the largest allowed value that is at most ``value``; 0 if no such value is allowed."""
        for lower in range(value, 0, -1):
            candidate = number.changed(lower)
            with suppress(UsageError):  # out of range, odd where it must be even, and the like
                size_of(candidate, quantity)
                if quantity == "state":  # position encodings refuse some widths too, and are not part of a state
                    candidate.model(torch.Generator())
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
