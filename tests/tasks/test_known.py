"""Every task has answers that a test computes a second time."""

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

MODULES = [test_algorithms, test_copying, test_hops, test_nesting, test_published, test_recall, test_state_tracking]


def test_every_task_is_known_but_those_of_files() -> None:
    known = [name for module in MODULES for name in module.KNOWN]

    assert sorted(known) == sorted(name for name in TASKS if TASKS[name].category() != "real")
