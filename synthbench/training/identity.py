"""Names rows by what decides the result of a run: its configuration and the versions of its components."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from synthbench.options import Value, arguments_of
from synthbench.suites import Suite
from synthbench.tasks import Task

DTYPE = "float32"

TRAINING_VERSION = 1
"""Raise it when training computes something else for the same configuration.

1 is left out of ids: rows from before this version existed have none.
"""


def task_options(suite: Suite, task: type[Task], length: int, options: Mapping[str, Value]) -> dict[str, Any]:
    """Describe a task for an id: its length and options in full, or its levels and the unit of their load."""
    if suite.ladder is None:
        return {"length": length, **arguments_of(task(**options))}
    levels = task.ladder(suite.ladder.longest, is_extended=suite.ladder.extended)
    return {"load": task.load, "rungs": [{**level._asdict(), "task": arguments_of(level.task)} for level in levels]}


class Component(NamedTuple):
    """A task, mechanism, block or position encoding, as an id names it."""

    name: str
    version: str
    """Value of :func:`synthbench.registry.version_of`."""
    arguments: dict[str, Any]
    """Of all options, but for additions at their defaults; of a ladder, its levels."""


def of_suite(suite: Suite) -> dict[str, Any]:
    """The part of a suite in ids: its protocol.

    Settings without a value are left out, so a new one renames no row. So are ``shifts``, which only add tests.
    """
    return {
        "model": suite.model.model_dump(
            mode="json", exclude={"block", "positions", "positions_otherwise"}, exclude_none=True
        ),
        "training": suite.training.model_dump(mode="json", exclude={"learning_rates"}, exclude_none=True),
        "evaluation": suite.evaluation.model_dump(mode="json", exclude={"shifts"}, exclude_none=True),
        **({} if suite.ladder is None else {"ladder": suite.ladder.model_dump(mode="json", exclude={"extended"})}),
    }


def of_cell(
    suite: Suite, components: Mapping[str, Component], *, device_type: str, match: str | None = None
) -> dict[str, Any]:
    """Collect what decides the result of every run of a cell, but for seed and learning rate.

    Args:
        suite: The protocol; its name and version are no part of it.
        components: By ``task``, ``mech``, ``block`` and ``positions``.
        device_type: ``cpu``, ``cuda``, ...
        match: What the size was matched to, if it was.
    """
    named = {
        key: value
        for kind, component in components.items()
        for key, value in (
            (kind, component.name),
            (f"{kind}_version", component.version),
            (f"{kind}_args", component.arguments),
        )
    }
    return {
        **named,
        **of_suite(suite),
        "dtype": DTYPE,
        "device_type": device_type,
        **({} if match is None else {"match": match}),
        **({} if TRAINING_VERSION == 1 else {"training_version": TRAINING_VERSION}),
    }


def of_run(suite: Suite, seed: int, learning_rate: float | None, *, is_tuning: bool = False) -> dict[str, Any]:
    """Collect what decides the result of one run beside its cell.

    The rate is no part of a tuned run: the rates to choose from and the seeds of the choice decide it.
    """
    if suite.tuning is None:
        return {"seed": seed, "learning_rate": learning_rate}
    if is_tuning:
        return {"seed": seed, "learning_rate": learning_rate, "role": "tuning"}
    choice = {"learning_rates": list(suite.training.learning_rates), "seeds": list(suite.tuning.seeds)}
    return {"seed": seed, "tuning": choice}
