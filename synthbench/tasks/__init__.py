"""The task generators, one a file; the folder is the category. NumPy only."""

from synthbench.tasks._measured import local_ceiling, shortcut_accuracies
from synthbench.tasks.base import IGNORE, TASKS, Batch, Bound, Task, sized, task

__all__ = ["IGNORE", "TASKS", "Batch", "Bound", "Task", "local_ceiling", "shortcut_accuracies", "sized", "task"]
