"""The task generators, one per file, in one folder per category. They need NumPy, but no deep-learning framework."""

from synthbench.tasks._measured import accuracy
from synthbench.tasks._recorded import (
    LevelBounds,
    committed_bounds,
    floor_and_ceiling,
    level_bounds,
    local_ceiling,
    references,
    shortcut_accuracies,
)
from synthbench.tasks.base import (
    IGNORE,
    SPLITS,
    TASKS,
    Batch,
    Bound,
    Level,
    Readout,
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
    "Level",
    "LevelBounds",
    "Readout",
    "Sized",
    "Split",
    "Task",
    "accuracy",
    "committed_bounds",
    "floor_and_ceiling",
    "level_bounds",
    "local_ceiling",
    "references",
    "shortcut_accuracies",
    "sized",
    "task",
]
