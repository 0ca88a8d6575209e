"""Synthetic sequence tasks for attention mechanisms: a benchmark suite and a leaderboard.

Public names are imported on first use, so ``import synthbench`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from synthbench.api import check, leaderboard, plan, quick, run, tables
    from synthbench.blocks import block
    from synthbench.loading import load
    from synthbench.mechanisms import MECHANISMS, mechanism
    from synthbench.positions import position
    from synthbench.results import Store
    from synthbench.runner.request import Request
    from synthbench.runner.run import RunReport
    from synthbench.suites import Suite, load_suite
    from synthbench.tasks import TASKS, task

__version__ = "0.1.0.dev0"
DISTRIBUTION = "synthbench-attention"
"""Name of the package on the package index; read by :mod:`synthbench.distribution`."""

__all__ = [
    "MECHANISMS",
    "TASKS",
    "Request",
    "RunReport",
    "Store",
    "Suite",
    "__version__",
    "block",
    "check",
    "leaderboard",
    "load",
    "load_suite",
    "mechanism",
    "plan",
    "position",
    "quick",
    "run",
    "tables",
    "task",
]

_NAMES = {
    "synthbench.api": ("check", "leaderboard", "plan", "quick", "run", "tables"),
    "synthbench.blocks": ("block",),
    "synthbench.loading": ("load",),
    "synthbench.mechanisms": ("MECHANISMS", "mechanism"),
    "synthbench.positions": ("position",),
    "synthbench.results": ("Store",),
    "synthbench.runner.request": ("Request",),
    "synthbench.runner.run": ("RunReport",),
    "synthbench.suites": ("Suite", "load_suite"),
    "synthbench.tasks": ("TASKS", "task"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'synthbench' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
