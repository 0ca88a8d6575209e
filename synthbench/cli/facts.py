"""Facts of a component (task, mechanism, block or position encoding) as plain values for JSON and tables.

Mechanisms are imported only when needed, since importing torch takes seconds; tasks and suites do not need torch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from synthbench.options import options_of
from synthbench.plugins import origin_of
from synthbench.registry import version_of
from synthbench.suites import CONDITIONS
from synthbench.tasks import TASKS, sized

if TYPE_CHECKING:
    from synthbench.mechanisms import Mechanism

STATE_LENGTHS = (64, 1024)
"""Sequence lengths at which the size of a mechanism's state is given, at width 64 with 4 heads."""


def task_facts(name: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return facts about a task: category, floor, ceiling, options, source, version and others.

    Args:
        name: The registered name.
        arguments: Level, length and options by name, as a suite file gives them. Default: the task's own length and
            options.
    """
    return {**task_bounds(name, arguments), "not_tested": TASKS[name].not_tested, **_of_component(TASKS[name])}


def task_bounds(name: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return category, version and bounds (floor and ceiling) of a task for a table; faster than :func:`task_facts`."""
    length, options = sized(name, arguments or {})
    task = TASKS[name](**options)
    facts = {"name": name, "category": task.category(), "length": length, "vocab_size": task.vocab_size}
    for end, bound in (("floor", task.floor(length)), ("ceiling", task.ceiling(length))):
        facts |= {end: bound.value, f"{end}_kind": bound.kind, f"{end}_standard_error": bound.standard_error}
    return facts | {"version": version_of(TASKS[name])}


def mechanism_facts(name: str) -> dict[str, Any]:
    """Return label, family, cost, state size (numbers per layer), options, source and version of a mechanism."""
    from synthbench.contract.places import sees_places
    from synthbench.mechanisms import MECHANISMS

    unit = MECHANISMS[name]
    return {
        "name": name,
        "label": unit.label,
        "family": unit.family,
        "complexity": unit.complexity,
        "state": {str(length): unit(max_length=length).state_elements(length) for length in STATE_LENGTHS},
        "conditions": {condition: _in_condition(unit, condition) for condition in CONDITIONS},
        "sees_places": sees_places(unit, {}),
        "rotation_note": getattr(unit, "rotation_note", ""),
        **_of_component(unit),
    }


def _in_condition(unit: "type[Mechanism]", condition: str) -> dict[str, Any]:
    """Return a mechanism's options, position encoding and sizes in the condition ``stock`` or ``bare``.

    A ``stock`` layer is built as published; a ``bare`` layer has only the recurrence or the attention scores. Only
    options that differ between these conditions are returned. Sizes are at width 64 with 4 heads.
    """
    from synthbench.mechanisms import condition_options, num_parameters

    options: dict[str, Any] = condition_options(unit, condition)
    differing = {name: options.get(name, options_of(unit)[name].default) for name in unit.bare}
    built = unit(max_length=STATE_LENGTHS[0], **options)
    return {
        "options": differing,
        "positions": unit.own_positions,
        "parameters": num_parameters(built),
        "state": built.state_elements(STATE_LENGTHS[0]),
    }


def part_facts(unit: type[Any]) -> dict[str, Any]:
    """Return options, source and version of a position encoding or a block.

    For a position encoding, ``rotates`` tells whether it rotates queries and keys.
    """
    rotates = {"rotates": unit.rotates} if hasattr(unit, "rotates") else {}
    return {"name": unit.name, **rotates, **_of_component(unit)}


def _of_component(unit: type[Any]) -> dict[str, Any]:
    return {
        "parameters": {
            option.name: {"default": option.default, "allowed": option.allowed(), "meaning": option.meaning}
            for option in options_of(unit).values()
        },
        "source": unit.source,
        "version": version_of(unit),
        "origin": origin_of(unit),
    }
