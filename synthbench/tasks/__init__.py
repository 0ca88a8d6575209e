"""The task generators, one a file; the folder is the category. NumPy only."""

from synthbench.tasks._local import local_ceiling
from synthbench.tasks.base import IGNORE, TASKS, Batch, Bound, Task, task

__all__ = ["IGNORE", "TASKS", "Batch", "Bound", "Task", "local_ceiling", "task"]
