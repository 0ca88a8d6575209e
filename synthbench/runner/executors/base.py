"""Defines an executor, and the one set of rules by which a job is tried again.

A new executor whose jobs run in other processes subclasses :class:`WorkerExecutor`, as ``ray.py`` does.

============================  =====================================================================================
a worker or its machine dies  the job is tried again, ``MAX_TRIES`` times in all; then rows with status ``error``
a mechanism raises            the worker writes rows with status ``error``; not tried again
memory runs out               the worker halves the runs that train together, down to one; if that is too much
                              beside other workers, the job is tried again when no other runs; then status ``oom``
a worker is killed for it     the job is tried once more, when no other runs; then rows with status ``oom``
the time is up                rows with status ``timeout``; not tried again
a loss is not finite          the worker writes rows with status ``diverged``; not tried again
a machine has no such plugin  rows with status ``contract``, also if its code differs from the driver's; not tried
                              again
rows cannot be written        the command ends, also where a machine does not see the folder of the results
no machine is left            the command ends and writes nothing; the same command runs what is missing
============================  =====================================================================================
"""

import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from synthbench import plugins
from synthbench.errors import ClusterLost, ContractError, StoreError, SynthbenchError
from synthbench.process import contained, log_of
from synthbench.registry import is_built_in
from synthbench.results import Store
from synthbench.runner import held_out
from synthbench.runner.plan import Job
from synthbench.runner.request import Request
from synthbench.runner.rows import Failure
from synthbench.runner.worker import (
    OutOfMemoryBesideOthers,
    RunContext,
    RunOutcome,
    execute,
    outcome_of,
    record_failure,
)

Handle = TypeVar("Handle")

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # read when torch is imported
    # Activations of a step come and go; giving them back to the system and faulting them in again took 8 to 13 % of a
    # step at length 64. Read by glibc when the process starts.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    # Helpers would end with the first job, and the next one would miss them.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
MAX_TRIES = 3
"""Tries at a job whose worker was killed."""

POLL_S = 0.5
"""Longest wait for a job to end before the driver looks whether it is to stop."""


@dataclass(frozen=True)
class JobDone:
    """A job has ended, with the outcomes of its missing runs."""

    job: Job
    outcomes: list[RunOutcome]


@dataclass(frozen=True)
class Try:
    """One try at a job; ``number`` counts from 1."""

    job: Job
    number: int
    is_alone: bool = False
    """True if no other job is to run meanwhile."""


class WorkerLost(Exception):  # noqa: N818 - not an error: the job is tried again
    """The process that had a job is gone, or its machine is; the message says how, ``status`` what that makes of it."""

    def __init__(self, how: str, status: str = "error") -> None:
        super().__init__(how)
        self.status = status


class Executor(ABC):
    """Runs jobs; the workers write the rows."""

    name: ClassVar[str]
    num_workers: int | None = 1
    """Jobs that run at once; None as long as it is not known."""

    @classmethod
    def for_request(cls, request: Request, slots: Sequence[Any]) -> "Executor":  # noqa: ARG003 - others need them
        """Make the executor of a request; ``slots`` are shares of this machine's GPUs, one per worker process.

        Raises:
            UsageError: If a field of the request is not allowed.
        """
        return cls()

    @abstractmethod
    def run(
        self,
        jobs: Sequence[Job],
        context: RunContext,
        stop: threading.Event,
        on_begin: Callable[[Job], None] = lambda _job: None,
    ) -> Iterator[JobDone]:
        """Run the jobs, begun in the order given, and yield each as it ends; begin no more once ``stop`` is set.

        ``on_begin`` is called in this process before a job is given away, again if it is tried again.
        """


class WorkerExecutor(Executor, Generic[Handle]):
    """An executor whose jobs run beside each other, in processes that may end at any time.

    A handle stands for a job that a worker was given.
    """

    first_number: int = 1
    """Number of the first try at a job: more than 1 if another executor has tried before."""

    @abstractmethod
    def workers(self, context: RunContext) -> AbstractContextManager[None]:
        """Start workers for jobs of a context, and end them after the last."""

    @abstractmethod
    def capacity(self) -> int:
        """Jobs that can run at once, now; 0 until those that run have ended and their processes are replaced."""

    @abstractmethod
    def begin(self, attempt: Try) -> Handle:
        """Give a job to a worker, at once or as soon as one is free."""

    @abstractmethod
    def withdraw(self, handle: Handle) -> bool:
        """Take a job back that no worker has begun; whether that was so."""

    @abstractmethod
    def ended(self, handles: Iterable[Handle]) -> list[Handle]:
        """Those that have ended, one way or another; wait for one for at most ``POLL_S``."""

    @abstractmethod
    def result(self, handle: Handle) -> list[RunOutcome]:
        """The outcomes of a job that has ended.

        Raises:
            TimeoutError: If its time was up.
            WorkerLost: If its worker died.
            OutOfMemoryBesideOthers: If the memory did not suffice for it beside the other jobs.
            SynthbenchError: As the worker raised it.
        """

    def run(
        self,
        jobs: Sequence[Job],
        context: RunContext,
        stop: threading.Event,
        on_begin: Callable[[Job], None] = lambda _job: None,
    ) -> Iterator[JobDone]:
        """Keep every worker busy and one job waiting for each.

        Foreign code can change whatever is computed in its process. So jobs of built-in components have workers that
        load no plugin, and those of each plugin have workers of their own.
        """
        is_alone = self.num_workers == 1
        for modules, part in by_foreign_code(jobs).items():
            needed = plugins.needed_for(modules, context.plugins)
            narrowed = replace(context, is_alone=is_alone, plugins=needed, foreign=tuple(sorted(modules)))
            left = deque(Try(job, self.first_number) for job in part)
            while left and not stop.is_set():
                left = yield from self._run(left, narrowed, stop, on_begin)
                narrowed = replace(narrowed, is_alone=True)

    def _run(
        self, waiting: deque[Try], context: RunContext, stop: threading.Event, on_begin: Callable[[Job], None]
    ) -> Generator[JobDone, None, deque[Try]]:
        """Run what waits, one at a time if it is to be alone; give back what is to be tried again alone."""
        retry_alone: deque[Try] = deque()
        running: dict[Handle, Try] = {}
        with self.workers(context):
            while (waiting and not stop.is_set()) or running:
                most = min(1, self.capacity()) if context.is_alone else 2 * self.capacity()
                while waiting and len(running) < most and not stop.is_set():
                    attempt = waiting.popleft()
                    on_begin(attempt.job)
                    running[self.begin(attempt)] = attempt
                if stop.is_set():
                    running = {handle: attempt for handle, attempt in running.items() if not self.withdraw(handle)}
                for handle in self.ended(running):
                    attempt = running.pop(handle)
                    end = end_of(attempt, partial(self.result, handle), context)
                    if isinstance(end, JobDone):
                        yield end
                    else:
                        (retry_alone if end.is_alone else waiting).appendleft(end)
        return retry_alone


def by_foreign_code(jobs: Sequence[Job]) -> dict[frozenset[str], list[Job]]:
    """The jobs by the modules of their components that do not come with synthbench; built-in ones have none."""
    parts: dict[frozenset[str], list[Job]] = {}
    for job in jobs:
        units = [unit for cell in job.cells for unit in cell.components]
        foreign = frozenset(unit.__module__ for unit in units if not is_built_in(unit))
        parts.setdefault(foreign, []).append(job)
    return parts


def end_of(attempt: Try, result: Callable[[], list[RunOutcome]], context: RunContext) -> JobDone | Try:
    """Finish a job or try it again; rows that no worker can write are written here.

    Args:
        attempt: The job that has ended.
        result: See :meth:`WorkerExecutor.result`.
        context: Of the command.

    Raises:
        StoreError: If the worker could not write a row, or the driver cannot.
        ClusterLost: If no machine is left to run anything.
    """
    try:
        return JobDone(attempt.job, result())
    except OutOfMemoryBesideOthers:
        return replace(attempt, is_alone=True)
    except TimeoutError as problem:
        failure = Failure("timeout", "JobTimeout", str(problem))
    except WorkerLost as problem:
        is_for_memory = problem.status == "oom"
        if attempt.number < MAX_TRIES and not (is_for_memory and attempt.is_alone):
            return replace(attempt, number=attempt.number + 1, is_alone=attempt.is_alone or is_for_memory)
        failure = Failure(problem.status, "WorkerDied", f"its worker died {attempt.number} times, {problem}")
    except (StoreError, ClusterLost):
        raise
    except SynthbenchError as problem:
        failure = Failure("contract", type(problem).__name__, str(problem))
    return JobDone(attempt.job, _give_up(attempt, failure, context))


def _give_up(attempt: Try, failure: Failure, context: RunContext) -> list[RunOutcome]:
    """Write the failure for the runs that no worker has finished since the plan was made."""
    job = attempt.job
    store = Store.open(held_out.folder_of(job, context.results, context.driver), create=True)
    names = {run.run_id: run for run in job.missing}
    finished = {
        name: outcome_of(row)
        for name, row in store.find(names).items()
        if row["finished_at"].timestamp() >= context.planned_at and row["finished_at"] != context.replaced.get(name)
    }
    left = tuple(run for name, run in names.items() if name not in finished)
    return [*finished.values(), *record_failure(replace(job, missing=left), failure, context, attempt.number)]


def log_of_job(job: Job, context: RunContext) -> Path:
    """Name the log of a job; the driver does, since a worker has no plugin loaded yet.

    Raises:
        SynthbenchError: If what the job names is not loaded in this process.
    """
    return log_of(context.results, (*job.missing, *job.untuned)[0].run_id, context.driver)


def work(attempt: Try, context: RunContext, log: Path) -> list[RunOutcome]:
    """Run a job in a worker process; its output goes to a file that the driver named.

    Raises:
        StoreError: If a row cannot be written, or this machine does not see the folder of the results.
        OutOfMemoryBesideOthers: If the memory does not suffice beside the other workers.
        UsageError: If this machine does not have a plugin.
        ContractError: If a plugin cannot be loaded, or the code here gives the row another name.
    """
    try:
        Store.open(context.results, create=False)  # else a folder of that name would be made here
    except StoreError as problem:
        raise StoreError(f"on {socket.gethostname()}: {problem}; all machines must see this folder") from None
    with contained(log):
        check_code(attempt.job, context, log)
        return execute(attempt.job, context, attempt.number)


def check_code(job: Job, context: RunContext, log: Path) -> None:
    """Load the plugins, and refuse code that is not the driver's.

    Raises:
        UsageError: If a plugin is not here.
        ContractError: If a plugin cannot be loaded, a component's source differs from that of the plan, or the row has
            another name than the log that the driver named.
    """
    plugins.load(context.plugins)
    if log_of_job(job, context) != log or any(cell.code != cell.code_here() for cell in job.cells):
        host = socket.gethostname()
        raise ContractError(f"{host} has another version of synthbench, or of what it runs, than the driver")
