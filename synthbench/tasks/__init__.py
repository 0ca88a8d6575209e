"""The task generators, one a file; the folder is the category. NumPy only."""

from synthbench.tasks.base import IGNORE, TASKS, Batch, Bound, Task, task

__all__ = ["IGNORE", "TASKS", "Batch", "Bound", "Task", "task"]
