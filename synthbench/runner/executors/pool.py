"""Runs jobs in worker processes of one thread each."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from filelock import FileLock
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from synthbench.lifeline import begin
from synthbench.process import become_worker, exit_of, require_guarded_main
from synthbench.runner.environment import num_memory_kills
from synthbench.runner.executors.base import (
    POLL_S,
    WORKER_ENVIRONMENT,
    Attempt,
    WorkerExecutor,
    WorkerLost,
    Workers,
    log_of_job,
    work,
)
from synthbench.runner.slots import Slot, enter, take_slot, undivided
from synthbench.runner.worker import Outcome, OutOfMemoryBesideOthers, RunContext

Future = ProcessFuture[list[Outcome]]


class Pool(WorkerExecutor[Future]):
    """A process a core, or a few on a GPU. A killed or hung worker costs its own job and no other.

    What a job prints lies in the folder of the results, in ``logs/RUN_ID.DRIVER.log``.

    Args:
        num_workers: Processes that run at once.
        timeout_s: Seconds after which a job is killed; None for no limit.
        first_number: Number of the first attempt at a job.
        slots: One a process where they run on GPUs; a worker sees nothing of them but its own.

    Raises:
        UsageError: If the processes could not import the script that runs.
    """

    name: ClassVar = "pool"

    def __init__(
        self, num_workers: int, timeout_s: float | None = None, first_number: int = 1, slots: Sequence[Slot] = ()
    ) -> None:
        require_guarded_main()
        self.num_workers: int = num_workers
        self.timeout_s = timeout_s
        self.first_number = first_number
        self.slots = tuple(slots)

    @contextmanager
    def _workers(self, context: RunContext) -> Iterator[Workers[Future]]:
        os.environ.update(WORKER_ENVIRONMENT)  # inherited by the children
        slots = self.slots
        if slots:
            context = replace(context, device="cuda")
            slots = undivided(slots[0]) if context.is_alone else slots
        with TemporaryDirectory(prefix="synthbench-slots-") as taken:
            new_pool = partial(
                ProcessPool,
                max_workers=1 if context.is_alone else self.num_workers,
                context=get_context("spawn"),
                initializer=begin,
                initargs=(f"{__name__}:_initialise_worker", [(slot.gpu, slot.share) for slot in slots], taken),
            )
            processes = _Processes(new_pool, self, context)
            try:
                yield processes
            finally:
                processes.end()


class _Processes(Workers[Future]):
    """A pool of pebble's, replaced when memory ran out in one of its processes, or when all of them died."""

    def __init__(self, new_pool: Callable[[], ProcessPool], executor: Pool, context: RunContext) -> None:
        self._new_pool, self._context = new_pool, context
        self._num_workers, self._timeout_s = executor.num_workers, executor.timeout_s
        self._pool = new_pool()
        self._is_worn = False
        """Whether memory ran out in a process, which keeps in pieces what it had."""
        self._memory_kills: dict[Future, int] = {}
        """How often the system had killed for memory when a job was given away."""

    def capacity(self) -> int:
        return self._num_workers if self._is_usable else 0

    def begin(self, attempt: Attempt) -> Future:
        log = log_of_job(attempt.job, self._context)
        try:
            future: Future = self._pool.schedule(work, args=[attempt, self._context, log], timeout=self._timeout_s)
        except RuntimeError:  # it broke a moment ago
            future = Future()
            future.set_exception(BrokenProcessPool())
        self._memory_kills[future] = num_memory_kills()
        return future

    def withdraw(self, handle: Future) -> bool:
        return not handle.running() and handle.cancel()

    def ended(self, handles: Iterable[Future]) -> list[Future]:
        futures = list(handles)
        if not futures and not self._is_usable:
            self.end()
            self._pool, self._is_worn = self._new_pool(), False
        wait(futures, timeout=POLL_S, return_when=FIRST_COMPLETED)
        return [future for future in futures if future.done() or not self._pool.active]

    def result(self, handle: Future) -> list[Outcome]:
        memory_kills = self._memory_kills.pop(handle)
        if not handle.done():  # its pool broke
            raise WorkerLost("all workers died")
        try:
            outcomes = handle.result()
        except TimeoutError:
            raise TimeoutError(f"killed after {self._timeout_s} s") from None
        except BrokenProcessPool:
            raise WorkerLost("all workers died") from None
        except ProcessExpired as problem:
            if problem.exitcode == -signal.SIGKILL and num_memory_kills() > memory_kills:
                raise WorkerLost("killed by the system for its memory", "oom") from None
            raise WorkerLost(exit_of(problem.exitcode)) from None
        except OutOfMemoryBesideOthers:
            self._is_worn = True
            raise
        self._is_worn |= any(outcome.status == "oom" for outcome in outcomes)
        return outcomes

    def end(self) -> None:
        """End all processes; what they have not done is lost."""
        self._pool.stop()
        self._pool.join()

    @property
    def _is_usable(self) -> bool:
        return self._pool.active and not self._is_worn


_held: list[FileLock] = []
"""Of this process: let go when it ends."""


def _initialise_worker(slots: Sequence[tuple[str, float]], taken: str) -> None:
    become_worker()
    if slots:
        slot, lock = take_slot([Slot(*slot) for slot in slots], Path(taken))
        _held.append(lock)
        enter(slot)
