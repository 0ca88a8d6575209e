"""What an executor is."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from synthbench.runner.plan import Job
from synthbench.runner.worker import Circumstances, Outcome


@dataclass(frozen=True)
class JobEvent:
    """A job ended: what became of its missing members."""

    job: Job
    outcomes: list[Outcome]


class Executor(ABC):
    """Runs jobs; the workers write the rows."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, jobs: Sequence[Job], circumstances: Circumstances, stop: threading.Event) -> Iterator[JobEvent]:
        """Run the jobs, begun in the order given, and yield each as it ends; begin no more once ``stop`` is set."""
