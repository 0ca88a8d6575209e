"""The task generators, one a file; the folder is the category. NumPy only."""

from synthbench.tasks._measured import accuracy
from synthbench.tasks._recorded import (
    RungBounds,
    committed_bounds,
    floor_and_ceiling,
    local_ceiling,
    references,
    rung_bounds,
    shortcut_accuracies,
)
from synthbench.tasks.base import (
    IGNORE,
    SPLITS,
    TASKS,
    Batch,
    Bound,
    Readout,
    Rung,
    Sized,
    Split,
    Task,
    sized,
    task,
)

__all__ = [
    "IGNORE",
    "SPLITS",
    "TASKS",
    "Batch",
    "Bound",
    "Readout",
    "Rung",
    "RungBounds",
    "Sized",
    "Split",
    "Task",
    "accuracy",
    "committed_bounds",
    "floor_and_ceiling",
    "local_ceiling",
    "references",
    "rung_bounds",
    "shortcut_accuracies",
    "sized",
    "task",
]
