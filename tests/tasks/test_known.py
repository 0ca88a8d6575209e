"""Every task has answers that a test computes a second time, and they are its answers."""

from collections.abc import Callable

import pytest

from synthbench.tasks import TASKS
from tests.tasks import (
    test_algorithms,
    test_copying,
    test_hops,
    test_nesting,
    test_published,
    test_recall,
    test_state_tracking,
)
from tests.tasks._known import checks_of

MODULES = [test_algorithms, test_copying, test_hops, test_nesting, test_published, test_recall, test_state_tracking]


@pytest.mark.parametrize("check", [check for module in MODULES for check in checks_of(module.KNOWN)])
def test_answers_and_bounds_are_those_that_are_known(check: Callable[[], None]) -> None:
    check()


def test_every_task_is_known_but_those_of_files() -> None:
    known = [name for module in MODULES for name in module.KNOWN]

    assert sorted(known) == sorted(name for name in TASKS if TASKS[name].category() != "real")
