"""Runs jobs in worker processes of one thread each."""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import torch
from filelock import FileLock
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from synthbench.runner.executors.base import (
    POLL_S,
    WORKER_ENVIRONMENT,
    Crew,
    Try,
    WorkerLost,
    Workers,
    log_of_job,
    work,
)
from synthbench.runner.slots import Slot, enter, take_slot, undivided
from synthbench.runner.worker import Circumstances, Outcome

__all__ = ["WORKER_ENVIRONMENT", "Pool"]

Future = ProcessFuture[list[Outcome]]


class Pool(Crew[Future]):
    """A process a core, or a few on a GPU. A killed or hung worker costs its own job and no other.

    What a job prints lies in the folder of the results, in ``logs/RUN_ID.log``.

    Args:
        num_workers: Processes that run at once.
        timeout_s: Seconds after which a job is killed; None for no limit.
        first_number: What the first try at a job counts as.
        slots: One a process where they run on GPUs; a worker sees nothing of them but its own.
    """

    name: ClassVar = "pool"

    def __init__(
        self, num_workers: int, timeout_s: float | None = None, first_number: int = 1, slots: Sequence[Slot] = ()
    ) -> None:
        self.num_workers: int = num_workers
        self.timeout_s = timeout_s
        self.first_number = first_number
        self.slots = tuple(slots)

    @contextmanager
    def _workers(self, circumstances: Circumstances) -> Iterator[Workers[Future]]:
        os.environ.update(WORKER_ENVIRONMENT)  # inherited by the children
        slots = self.slots
        if slots:
            circumstances = replace(circumstances, device="cuda")
            slots = undivided(slots[0]) if circumstances.is_alone else slots
        with TemporaryDirectory(prefix="synthbench-slots-") as taken:
            pool = ProcessPool(
                max_workers=1 if circumstances.is_alone else self.num_workers,
                context=get_context("spawn"),
                initializer=_initialise_worker,
                initargs=(slots, Path(taken)),
            )
            try:
                yield _Processes(pool, self, circumstances)
                pool.close()
            finally:
                pool.stop()
                pool.join()


class _Processes(Workers[Future]):
    def __init__(self, pool: ProcessPool, executor: Pool, circumstances: Circumstances) -> None:
        self._pool, self._circumstances = pool, circumstances
        self._num_workers, self._timeout_s = executor.num_workers, executor.timeout_s

    def capacity(self) -> int:
        return self._num_workers

    def begin(self, attempt: Try) -> Future:
        log = log_of_job(attempt.job, self._circumstances)
        return self._pool.schedule(work, args=[attempt, self._circumstances, log], timeout=self._timeout_s)

    def withdraw(self, handle: Future) -> bool:
        return not handle.running() and handle.cancel()

    def ended(self, handles: Iterable[Future]) -> list[Future]:
        futures = list(handles)
        wait(futures, timeout=POLL_S, return_when=FIRST_COMPLETED)
        return [future for future in futures if future.done()]

    def result(self, handle: Future) -> list[Outcome]:
        try:
            return handle.result()
        except TimeoutError:
            raise TimeoutError(f"killed after {self._timeout_s} s") from None
        except ProcessExpired as problem:
            raise WorkerLost(f"exit code {problem.exitcode}") from None


_held: list[FileLock] = []
"""Of this process: let go when it ends."""


def _initialise_worker(slots: Sequence[Slot], taken: Path) -> None:
    torch.set_num_threads(1)
    if slots:
        slot, lock = take_slot(slots, taken)
        _held.append(lock)
        enter(slot)
    # Ctrl-C goes to the whole process group; the driver decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
