"""Identities of result rows: the configuration and the component versions that decide the result of a run."""

from collections.abc import Mapping
from typing import Any

from synthbench.options import Value, arguments_of
from synthbench.suites import Suite
from synthbench.tasks import Task

DTYPE = "float32"

TRAINING_VERSION = 1
"""Version of the training code; raise it when training computes something else for the same configuration.

Version 1 is left out of row ids, since the first rows were written before this version existed.
"""


def task_options(suite: Suite, task: type[Task], length: int, options: Mapping[str, Value]) -> dict[str, Any]:
    """Return the length and options of a task, as a part of a row's id.

    On a ladder, each level has its own length and options; the result then holds the levels and the unit of their load
    (difficulty).
    """
    if suite.ladder is None:
        return {"length": length, **arguments_of(task(**options))}
    levels = task.ladder(suite.ladder.longest, is_extended=suite.ladder.extended)
    return {"load": task.load, "rungs": [{**level._asdict(), "task": arguments_of(level.task)} for level in levels]}


def of_suite(suite: Suite) -> dict[str, Any]:
    """Collect the settings of a suite that enter the ids of rows: model, training, evaluation and ladder (levels).

    Settings that are None are left out, so that a setting added later changes no existing id. The shifts of token
    positions (``shifts``) are left out too, since they only add tests. So is the ladder's ``extended``, since
    :func:`task_options` lists the levels. Other functions add block, positions and learning rates to the id.
    """
    return {
        "model": suite.model.model_dump(
            mode="json", exclude={"block", "positions", "positions_otherwise"}, exclude_none=True
        ),
        "training": suite.training.model_dump(mode="json", exclude={"learning_rates"}, exclude_none=True),
        "evaluation": suite.evaluation.model_dump(mode="json", exclude={"shifts"}, exclude_none=True),
        **({} if suite.ladder is None else {"ladder": suite.ladder.model_dump(mode="json", exclude={"extended"})}),
    }


def of_protocol(suite: Suite, *, device_type: str, match: str | None) -> dict[str, Any]:
    """Collect all settings that decide results, except components (such as the task), the seed and the learning rate.

    Args:
        suite: The suite with the settings of training and evaluation; its name and version are not used.
        device_type: ``cpu``, ``cuda``, ...
        match: The size, such as ``state=4096``, to which the model was resized; None if it was not.
    """
    return {
        **of_suite(suite),
        "dtype": DTYPE,
        "device_type": device_type,
        **({} if match is None else {"match": match}),
        **({} if TRAINING_VERSION == 1 else {"training_version": TRAINING_VERSION}),
    }


def of_run(suite: Suite, seed: int, learning_rate: float | None, *, is_tuning: bool = False) -> dict[str, Any]:
    """Collect the settings that decide a run's result, besides the settings of its cell (the mechanism on the task).

    They are the seed and the learning rate. For a reported run whose rate is chosen by separate runs, they are instead
    the seed, the rates to choose from and the tuning seeds.
    """
    if suite.tuning is None:
        return {"seed": seed, "learning_rate": learning_rate}
    if is_tuning:
        return {"seed": seed, "learning_rate": learning_rate, "role": "tuning"}
    choice = {"learning_rates": list(suite.training.learning_rates), "seeds": list(suite.tuning.seeds)}
    return {"seed": seed, "tuning": choice}
