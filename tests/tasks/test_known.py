"""Every task has answers that a test computes a second time, and they are its answers."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from synthbench.errors import UsageError
from synthbench.options import parse_term
from synthbench.tasks import TASKS, sized
from tests.tasks._known import Known, check_bounds, check_example, check_targets

MODULES = "algorithms", "copying", "hops", "nesting", "published", "recall", "state_tracking"
KNOWN: dict[str, Known] = {}
for module in MODULES:
    KNOWN |= import_module(f"tests.tasks.test_{module}").KNOWN
SETTINGS = (Path(__file__).parent / "settings.txt").read_text(encoding="utf-8").split()
"""Other lengths and options of tasks, at which the bounds are compared as well."""


@pytest.mark.parametrize("name", KNOWN)
def test_the_worked_example_of_a_task_is_true(name: str) -> None:
    check_example(name, KNOWN[name].reference)


@pytest.mark.parametrize("name", KNOWN)
def test_targets_are_those_of_the_naive_form_whatever_options_length_and_seed(name: str) -> None:
    check_targets(TASKS[name], KNOWN[name].reference)


@pytest.mark.parametrize("setting", [*KNOWN, *SETTINGS])
def test_constants_reach_the_floor_the_oracle_the_ceiling_from_prefixes_and_shortcuts_fail(setting: str) -> None:
    name, arguments = parse_term(setting)
    length, options = sized(name, arguments)
    check_bounds(TASKS[name](**options), length, KNOWN[name])


@pytest.mark.parametrize("name", TASKS)
def test_a_length_that_no_sequence_has_is_refused_whatever_is_asked_for(name: str) -> None:
    task = TASKS[name]()
    for call in (task.floor, task.ceiling, lambda length: task.sample(np.random.default_rng(0), 1, length)):
        with pytest.raises(UsageError, match=f"length of task '{name}' is 0; allowed: "):
            call(0)


def test_every_task_is_known_but_those_of_files() -> None:
    assert sorted(KNOWN) == sorted(name for name in TASKS if TASKS[name].category() != "real")
