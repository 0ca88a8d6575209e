"""Runs jobs in worker processes of one thread each."""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from filelock import FileLock, Timeout
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from synthbench.errors import UsageError
from synthbench.process import (
    STARTED_BY,
    become_worker,
    begin,
    end_orphans,
    exit_of,
    orphans_ended,
    require_guarded_main,
)
from synthbench.runner.environment import num_memory_kills, usable_cores
from synthbench.runner.executors.base import (
    POLL_S,
    WORKER_ENVIRONMENT,
    Try,
    WorkerExecutor,
    WorkerLost,
    log_of_job,
    work,
)
from synthbench.runner.request import Request, RunContext
from synthbench.runner.worker import OutOfMemoryBesideOthers, RunOutcome

Future = ProcessFuture[list[RunOutcome]]

VISIBLE = "CUDA_VISIBLE_DEVICES"


class Pool(WorkerExecutor[Future]):
    """Runs jobs in worker processes, usually one per core or one per GPU; if a process is killed, only its job is lost.

    The output of a job goes to ``logs/RUN_ID.DRIVER.log`` in the results folder. ``RUN_ID`` is the id of the job's
    first run that has no row yet, and ``DRIVER`` is the id of the command.

    Args:
        num_workers: Number of processes.
        timeout_s: Seconds after which a job is killed; None for no limit.
        first_number: Number of the first try at a job; above 1 if another executor has tried the job before.
        slots: The GPU, or fraction of a GPU, of each process, which sees only this GPU. Empty on CPUs.

    Raises:
        UsageError: If the running script has no ``if __name__ == "__main__":`` guard.
    """

    name: ClassVar = "pool"

    def __init__(
        self, num_workers: int, timeout_s: float | None = None, first_number: int = 1, slots: Sequence["Slot"] = ()
    ) -> None:
        require_guarded_main()
        self.num_workers: int = num_workers
        self.timeout_s = timeout_s
        self.first_number = first_number
        self.slots = tuple(slots)

    @classmethod
    def for_request(cls, request: Request, slots: Sequence["Slot"]) -> "Pool":
        """Make a pool with one process per GPU slot; on CPUs, with the requested number (default: one per core)."""
        return cls(len(slots) or request.workers or usable_cores(), request.timeout_s, slots=slots)

    @contextmanager
    def workers(self, context: RunContext) -> Iterator[None]:
        """Start the processes, and end them on exit; if ``context.is_alone``, start only one, with a whole GPU."""
        os.environ.update(WORKER_ENVIRONMENT)  # inherited by the children
        slots = self.slots
        if slots:
            context = replace(context, device="cuda")
            slots = (slots[0]._replace(share=1.0),) if context.is_alone else slots
        self._context = context
        self._memory_kills: dict[Future, int] = {}
        """For each job, how many processes this machine had killed for lack of memory before the job was queued."""
        with orphans_ended() as self._folder:
            self._new_pool = partial(
                ProcessPool,
                max_workers=1 if context.is_alone else self.num_workers,
                context=get_context("spawn"),
                initializer=begin,
                initargs=(f"{__name__}:_initialise_worker", [tuple(slot) for slot in slots], self._folder),
            )
            self._renew()
            try:
                yield
            finally:
                self._end()

    def _renew(self) -> None:
        """Start new processes: at the beginning, after memory ran out in a process, or after all processes died."""
        self._pool = self._new_pool()
        self._is_worn = False
        """True if memory ran out in a process, whose memory is then fragmented."""

    def _end(self) -> None:
        """End all processes; unfinished jobs are lost."""
        self._pool.stop()
        self._pool.join()

    @property
    def _is_usable(self) -> bool:
        return self._pool.active and not self._is_worn

    def capacity(self) -> int:
        """Return the number of processes, or 0 if the processes must be replaced first."""
        return self.num_workers if self._is_usable else 0

    def begin(self, attempt: Try) -> Future:
        """Queue a job."""
        log = log_of_job(attempt.job, self._context)
        try:
            future: Future = self._pool.schedule(work, args=[attempt, self._context, log], timeout=self.timeout_s)
        except RuntimeError:  # it broke a moment ago
            future = Future()
            future.set_exception(BrokenProcessPool())
        self._memory_kills[future] = num_memory_kills()
        return future

    def withdraw(self, handle: Future) -> bool:
        """Take a job out of the queue and return True, or return False if the job has begun."""
        return not handle.running() and handle.cancel()

    def ended(self, handles: Iterable[Future]) -> list[Future]:
        """Return the jobs that have ended, after a short wait.

        If no job is running or queued, first replace processes that died or ran out of memory.
        """
        futures = list(handles)
        if not futures and not self._is_usable:
            self._end()
            self._renew()
        wait(futures, timeout=POLL_S, return_when=FIRST_COMPLETED)
        return [future for future in futures if future.done() or not self._pool.active]

    def result(self, handle: Future) -> list[RunOutcome]:
        """Return the outcomes of a job, or raise an error that says how its process ended."""
        memory_kills = self._memory_kills.pop(handle)
        if not handle.done():  # its pool broke
            raise WorkerLost("all workers died")
        try:
            outcomes = handle.result()
        except TimeoutError:
            end_orphans(self._folder)
            raise TimeoutError(f"killed after {self.timeout_s} s") from None
        except BrokenProcessPool:
            raise WorkerLost("all workers died") from None
        except ProcessExpired as problem:
            end_orphans(self._folder)
            if problem.exitcode == -signal.SIGKILL and num_memory_kills() > memory_kills:
                raise WorkerLost("killed by the system for its memory", "oom") from None
            raise WorkerLost(exit_of(problem.exitcode)) from None
        except OutOfMemoryBesideOthers:
            self._is_worn = True
            raise
        self._is_worn |= any(outcome.status == "oom" for outcome in outcomes)
        return outcomes


# GPUs of worker processes: how many processes share one, and what each sees of it, set before CUDA starts.


class Slot(NamedTuple):
    """Room for one worker process: a whole GPU, or a GPU with a fraction of its memory."""

    gpu: str
    """The GPU, named as in ``CUDA_VISIBLE_DEVICES``."""
    share: float = 1.0
    """Fraction of the memory of the GPU."""


def gpu_slots(device: torch.device, per_gpu: int, num_workers: int | None) -> list[Slot]:
    """List the GPU slots of worker processes; each slot is a GPU, or a GPU with a part of its memory.

    The slots alternate between the GPUs that this process sees.

    Args:
        device: ``cuda`` for all of these GPUs, or ``cuda:1`` for the GPU with index 1.
        per_gpu: Number of processes that share a GPU, with equal parts of its memory.
        num_workers: Number of processes, at least 1; None for ``per_gpu`` on each GPU.

    Raises:
        UsageError: If ``num_workers`` is more than ``per_gpu`` on each GPU.
    """
    num_gpus, visible = torch.cuda.device_count(), os.environ.get(VISIBLE)
    names = [str(index) for index in range(num_gpus)] if visible is None else visible.split(",")[:num_gpus]
    gpus = names if device.index is None else names[device.index : device.index + 1]
    slots = [Slot(gpu.strip(), 1 / per_gpu) for _ in range(per_gpu) for gpu in gpus]
    if num_workers is not None and num_workers > len(slots):
        raise UsageError(
            f"workers is {num_workers}; allowed: 1 to {len(slots)}, {per_gpu} on each of {len(gpus)} GPUs; "
            "--per-gpu sets how many share one"
        )
    return slots[:num_workers]


def take_slot(slots: Sequence[Slot], folder: Path, *, patience_s: float = 60.0) -> tuple[Slot, FileLock]:
    """Take a free slot (GPU or fraction of a GPU); keep it until the returned lock is released or this process ends.

    Args:
        slots: All slots of a pool.
        folder: Folder in which the pool's processes mark taken slots.
        patience_s: Seconds to wait for a free slot; a killed process may still hold one.

    Raises:
        TimeoutError: If no slot becomes free within ``patience_s`` seconds.
    """
    until = time.monotonic() + patience_s
    while True:
        for number, slot in enumerate(slots):
            lock = FileLock(folder / f"slot-{number}.lock")
            with suppress(Timeout):
                lock.acquire(timeout=0)
                return slot, lock
        if time.monotonic() > until:
            raise TimeoutError(f"all {len(slots)} slots are taken")
        time.sleep(0.05)


_held: list[FileLock] = []
"""Lock of this process's slot, released when the process ends."""


def _initialise_worker(slots: Sequence[tuple[str, float]], folder: str) -> None:
    """Make this process a worker; if there are slots, it sees only its slot's GPU. Call this before CUDA starts."""
    become_worker()
    os.environ[STARTED_BY] = folder  # a server that forks workers may be older than the folder
    if slots:
        slot, lock = take_slot([Slot(*slot) for slot in slots], Path(folder))
        _held.append(lock)
        os.environ[VISIBLE] = slot.gpu
        if slot.share < 1:
            torch.cuda.set_per_process_memory_fraction(slot.share, 0)
