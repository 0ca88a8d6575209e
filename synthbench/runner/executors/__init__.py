"""Ways to run jobs: in this process, or in a pool of worker processes."""

from synthbench.runner.executors.base import Executor, JobEvent
from synthbench.runner.executors.inline import Inline
from synthbench.runner.executors.pool import Pool

__all__ = ["Executor", "Inline", "JobEvent", "Pool"]
