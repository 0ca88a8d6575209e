"""Defines executors, and the rules by which all executors retry jobs (a job is the runs that one worker trains).

A new executor whose jobs run in other processes subclasses :class:`WorkerExecutor`, as ``pool.py`` and ``ray.py`` do.
Each rule gives an event and its consequences:

============================  =====================================================================================
a worker or its machine dies  the job is tried again, ``MAX_TRIES`` times in all; then rows with status ``error``
a mechanism raises            the worker writes rows with status ``error``; not tried again
memory runs out               the worker halves the number of runs that train at once, down to one; if a single run
                              does not fit beside other workers, the job is tried again while no other job runs;
                              then rows with status ``oom``
worker killed for its memory  the job is tried once more, while no other job runs; then rows with status ``oom``
the time limit is reached     rows with status ``timeout``; not tried again
a loss is not finite          the worker writes rows with status ``diverged``; not tried again
a machine lacks a plugin      rows with status ``contract``; not tried again
a machine's code differs      rows with status ``contract``; not tried again
rows cannot be written        the command ends, also if a machine does not see the folder of the results
no machine is left            the command ends without rows for unfinished jobs; repeat the command to run them
============================  =====================================================================================
"""

import socket
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
from synthbench.plugins import is_built_in
from synthbench.process import contained
from synthbench.results import Store
from synthbench.runner import held_out
from synthbench.runner.plan import Job
from synthbench.runner.request import Request, RunContext
from synthbench.runner.rows import Failure
from synthbench.runner.worker import OutOfMemoryBesideOthers, RunOutcome, execute, outcome_of, record_failure

Handle = TypeVar("Handle")

OnBegin = Callable[[Job], None]
"""A function that is called with each job just before the job is handed to a worker."""

IsStopped = Callable[[], bool]
"""A function that returns True once no further job may begin."""

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # read when torch is imported
    # Activations of a step come and go; giving them back to the system and faulting them in again took 8 to 13 % of a
    # step at length 64. Read by glibc when the process starts.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    # Helper processes would end with the first job, and the next job would lack them.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
MAX_TRIES = 3
"""Limit on the tries at a job whose worker dies."""

POLL_S = 0.5
"""Seconds that the process of the command waits for a job to end before it checks whether to stop."""


@dataclass(frozen=True)
class JobDone:
    """A job that has ended, with one outcome for each run that it had to do (``job.missing``)."""

    job: Job
    outcomes: list[RunOutcome]


@dataclass(frozen=True)
class Try:
    """One try at a job (the runs that one worker trains); ``number`` counts the tries from 1."""

    job: Job
    number: int
    is_alone: bool = False
    """True if no other job may run at the same time."""


class WorkerLost(Exception):  # noqa: N818 - not an error: the job is tried again
    """Death of a job's worker process or machine. If the job is not tried again, its rows get the status ``status``."""

    def __init__(self, how: str, status: str = "error") -> None:
        super().__init__(how)
        self.status = status


class Executor(ABC):
    """Runs the jobs of a plan; the workers write the rows."""

    name: ClassVar[str]
    num_workers: int | None = 1
    """Number of jobs that run at once; None until it is known."""

    @classmethod
    def for_request(cls, request: Request, slots: Sequence[Any]) -> "Executor":  # noqa: ARG003 - others need them
        """Make an executor with the settings of a request.

        ``slots`` holds the GPU, or fraction of a GPU, of each worker process.

        Raises:
            UsageError: If a field of the request is not allowed.
        """
        return cls()

    @abstractmethod
    def run(
        self, jobs: Sequence[Job], context: RunContext, is_stopped: IsStopped, on_begin: OnBegin = lambda _job: None
    ) -> Iterator[JobDone]:
        """Run the jobs, and yield each job when it has ended; once ``is_stopped`` returns True, no further job begins.

        ``on_begin`` is called in this process with each job before a worker gets it, and perhaps again before another
        try.
        """


class WorkerExecutor(Executor, Generic[Handle]):
    """An executor whose jobs run in parallel, in processes that may die at any time.

    A handle is the object that stands for a job once it has been queued for a worker.
    """

    first_number: int = 1
    """Number of the first try at a job; above 1 if another executor has tried the job before."""

    @abstractmethod
    def workers(self, context: RunContext) -> AbstractContextManager[None]:
        """Start workers with the settings of ``context``, and end them on exit."""

    @abstractmethod
    def capacity(self) -> int:
        """Return how many jobs can run at the same time now.

        The result is 0 if worker processes must be replaced as soon as the running jobs have ended.
        """

    @abstractmethod
    def begin(self, attempt: Try) -> Handle:
        """Hand a job to a worker, at once or as soon as a worker is free."""

    @abstractmethod
    def withdraw(self, handle: Handle) -> bool:
        """Take back a job if no worker has begun it; return whether it was taken back."""

    @abstractmethod
    def ended(self, handles: Iterable[Handle]) -> list[Handle]:
        """Return the handles of all jobs that have ended, by success or failure.

        If no job has ended, wait up to ``POLL_S`` seconds for one. A handle stands for a job that was queued for a
        worker.
        """

    @abstractmethod
    def result(self, handle: Handle) -> list[RunOutcome]:
        """Return the outcomes of a job that has ended, one per run.

        Raises:
            TimeoutError: If the job reached its time limit.
            WorkerLost: If the worker of the job died.
            OutOfMemoryBesideOthers: If the job ran out of memory that it shared with other jobs.
            SynthbenchError: If the worker raised an error of this type.
        """

    def run(
        self, jobs: Sequence[Job], context: RunContext, is_stopped: IsStopped, on_begin: OnBegin = lambda _job: None
    ) -> Iterator[JobDone]:
        """Run the jobs; every worker is kept busy, and one more job per worker waits in the queue.

        Jobs of built-in components run in workers without plugins, and jobs of each plugin in separate workers, since a
        plugin can change anything in its process. ``on_begin`` is called before every try at a job.
        """
        is_alone = self.num_workers == 1
        for modules, part in by_foreign_code(jobs).items():
            needed = plugins.needed_for(modules, context.plugins)
            narrowed = replace(context, is_alone=is_alone, plugins=needed, foreign=tuple(sorted(modules)))
            left = deque(Try(job, self.first_number) for job in part)
            while left and not is_stopped():
                left = yield from self._run(left, narrowed, is_stopped, on_begin)
                narrowed = replace(narrowed, is_alone=True)

    def _run(
        self, waiting: deque[Try], context: RunContext, is_stopped: IsStopped, on_begin: OnBegin
    ) -> Generator[JobDone, None, deque[Try]]:
        """Run the waiting tries at jobs, one at a time if ``context.is_alone``.

        Return the tries that must be repeated while no other job runs.
        """
        retry_alone: deque[Try] = deque()
        running: dict[Handle, Try] = {}
        with self.workers(context):
            while (waiting and not is_stopped()) or running:
                most = min(1, self.capacity()) if context.is_alone else 2 * self.capacity()
                while waiting and len(running) < most and not is_stopped():
                    attempt = waiting.popleft()
                    on_begin(attempt.job)
                    running[self.begin(attempt)] = attempt
                if is_stopped():
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
    """Group jobs by the modules that define their plugin components.

    Each key is a set of module names; the set is empty for jobs with only built-in components.
    """
    parts: dict[frozenset[str], list[Job]] = {}
    for job in jobs:
        units = [unit for cell in job.cells for unit in cell.components]
        foreign = frozenset(unit.__module__ for unit in units if not is_built_in(unit))
        parts.setdefault(foreign, []).append(job)
    return parts


def end_of(attempt: Try, result: Callable[[], list[RunOutcome]], context: RunContext) -> JobDone | Try:
    """Return the finished job; if this try at the job failed and another try is allowed, return the next try instead.

    If the last try fails, rows that record the failure are written first.

    Args:
        attempt: The try that has ended.
        result: Function that returns the outcomes or raises an exception, like :meth:`WorkerExecutor.result`.
        context: Settings of the command.

    Raises:
        StoreError: If the worker or this process cannot write a row.
        ClusterLost: If no machine is left to run jobs.
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
    """Write rows that record the failure of each missing run that no worker has finished since the plan was made.

    Return the outcomes of all missing runs of the job.
    """
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
    """Return the path of the log file for a job.

    The file's name contains the id of the job's first run that has no row yet, and the id of the command. So two
    commands can run the same job at once. The driver (the process of the command) passes the path to the worker, which
    could compute it only after loading the plugins.

    Raises:
        SynthbenchError: If a component of the job is not loaded in this process.
    """
    return context.results / "logs" / f"{(*job.missing, *job.untuned)[0].run_id}.{context.driver}.log"


def work(attempt: Try, context: RunContext, log: Path) -> list[RunOutcome]:
    """Run a job in this worker process, and return the outcomes; printed output goes to the file ``log``.

    Raises:
        StoreError: If a row cannot be written, or this machine does not see the results folder.
        OutOfMemoryBesideOthers: If the job runs out of memory that it shares with other workers.
        UsageError: If this machine lacks a plugin.
        ContractError: If a plugin cannot be loaded, or this machine's code differs from the driver's.
    """
    try:
        Store.open(context.results, create=False)  # else a folder of that name would be made here
    except StoreError as problem:
        raise StoreError(f"on {socket.gethostname()}: {problem}; all machines must see this folder") from None
    with contained(log):
        check_code(attempt.job, context, log)
        return execute(attempt.job, context, attempt.number)


def check_code(job: Job, context: RunContext, log: Path) -> None:
    """Load the plugins, and check that this machine has the same code as the driver (the command's main process).

    Raises:
        UsageError: If this machine lacks a plugin.
        ContractError: If a plugin cannot be loaded, if the code of a component differs, or if :func:`log_of_job` does
            not return ``log``, the driver's path.
    """
    plugins.load(context.plugins)
    if log_of_job(job, context) != log or any(cell.code != cell.code_here() for cell in job.cells):
        host = socket.gethostname()
        raise ContractError(f"{host} has another version of synthbench, or of what it runs, than the driver")
