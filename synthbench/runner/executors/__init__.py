"""Ways to run jobs: in this process, in a pool of worker processes, and beyond one machine.

``ray`` and ``slurm`` are not imported here: their packages are extras.
"""

from synthbench.runner.executors.base import Executor, JobEvent
from synthbench.runner.executors.inline import Inline
from synthbench.runner.executors.pool import Pool

__all__ = ["Executor", "Inline", "JobEvent", "Pool"]
