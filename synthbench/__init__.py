"""Synthetic sequence tasks for attention mechanisms: a benchmark suite and a leaderboard.

The public names are imported when they are first used, so that ``import synthbench`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from synthbench.api import check, leaderboard, plan, quick, run, tables
    from synthbench.loading import load
    from synthbench.mechanisms import MECHANISMS
    from synthbench.results import Store
    from synthbench.runner.request import Request
    from synthbench.runner.run import RunReport
    from synthbench.suites import Suite, load_suite
    from synthbench.tasks import TASKS

__version__ = "0.1.0.dev0"
DISTRIBUTION = "synthbench-attention"
"""The name on the package index; :mod:`synthbench.distribution` looks for it."""

__all__ = [
    "MECHANISMS",
    "TASKS",
    "Request",
    "RunReport",
    "Store",
    "Suite",
    "__version__",
    "check",
    "leaderboard",
    "load",
    "load_suite",
    "plan",
    "quick",
    "run",
    "tables",
]

_HOMES = {
    "MECHANISMS": "synthbench.mechanisms",
    "TASKS": "synthbench.tasks",
    "Request": "synthbench.runner.request",
    "RunReport": "synthbench.runner.run",
    "Store": "synthbench.results",
    "Suite": "synthbench.suites",
    "check": "synthbench.api",
    "leaderboard": "synthbench.api",
    "load": "synthbench.loading",
    "load_suite": "synthbench.suites",
    "plan": "synthbench.api",
    "quick": "synthbench.api",
    "run": "synthbench.api",
    "tables": "synthbench.api",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'synthbench' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
