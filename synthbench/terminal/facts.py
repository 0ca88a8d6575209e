"""What is known of a registered unit, as plain values for JSON and for tables.

Mechanisms are imported where they are asked for: torch takes seconds, and tasks and suites do without it.
"""

from typing import Any

from synthbench.knobs import knobs_of
from synthbench.registry import origin_of, version_of
from synthbench.suites import load_suite
from synthbench.tasks import TASKS


def task_facts(name: str) -> dict[str, Any]:
    """Category, bounds at the published length, knobs, source and version of a task."""
    task = TASKS[name]()
    floor, ceiling = task.floor(task.length), task.ceiling(task.length)
    return {
        "name": name,
        "category": task.category(),
        "length": task.length,
        "vocab_size": task.vocab_size,
        "floor": floor.value,
        "floor_kind": floor.kind,
        "ceiling": ceiling.value,
        "ceiling_kind": ceiling.kind,
        "ceiling_standard_error": ceiling.standard_error,
        "parameters": _parameters(TASKS[name]),
        "not_tested": task.not_tested,
        "source": task.source,
        "version": version_of(TASKS[name]),
        "origin": origin_of(TASKS[name]),
    }


def mechanism_facts(name: str) -> dict[str, Any]:
    """Label, family, hyper-parameters, source and version of a mechanism."""
    from synthbench.mechanisms import MECHANISMS

    unit = MECHANISMS[name]
    return {
        "name": name,
        "label": unit.label,
        "family": unit.family,
        "parameters": _parameters(unit),
        "source": unit.source,
        "version": version_of(unit),
        "origin": origin_of(unit),
    }


def suite_facts(name: str) -> dict[str, Any]:
    """The whole content of a suite."""
    return load_suite(name).model_dump(mode="json")


def _parameters(unit: type) -> dict[str, dict[str, Any]]:
    return {
        knob.name: {"default": knob.default, "allowed": knob.allowed(), "meaning": knob.meaning}
        for knob in knobs_of(unit).values()
    }
