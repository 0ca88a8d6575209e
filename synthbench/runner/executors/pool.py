"""Runs jobs in worker processes of one thread each."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures import TimeoutError as JobTimeout
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

import torch
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from synthbench.errors import ContractError
from synthbench.results import Store
from synthbench.runner.containment import contained, log_of
from synthbench.runner.executors.base import Executor, JobEvent
from synthbench.runner.plan import Job
from synthbench.runner.rows import Failure
from synthbench.runner.worker import Circumstances, Outcome, driver_attempt, execute, record_failure

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # read when torch is imported
    # Activations of a step come and go; giving them back to the system and faulting them in again took 8 to 13 % of a
    # step at length 64. Read by glibc when the process starts.
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
}
MAX_ATTEMPTS = 3
"""Tries at a job whose worker was killed."""


class Pool(Executor):
    """A process a core, or a few on a GPU. A killed or hung worker costs its own job and no other.

    What a job prints lies in the folder of the results, in ``logs/RUN_ID.log``.

    Args:
        num_workers: Processes that run at once.
        timeout_s: Seconds after which a job is killed; None for no limit.
    """

    name: ClassVar = "pool"

    def __init__(self, num_workers: int, timeout_s: float | None = None) -> None:
        self.num_workers = num_workers
        self.timeout_s = timeout_s

    def run(self, jobs: Sequence[Job], circumstances: Circumstances, stop: threading.Event) -> Iterator[JobEvent]:
        """Keep every worker busy and one job waiting for each."""
        waiting = deque((job, 1) for job in jobs)
        running: dict[ProcessFuture[list[Outcome]], tuple[Job, int]] = {}
        os.environ.update(WORKER_ENVIRONMENT)  # inherited by the children
        pool = ProcessPool(
            max_workers=self.num_workers,
            context=get_context("spawn"),
            initializer=_initialise_worker,
        )
        try:
            while (waiting and not stop.is_set()) or running:
                while waiting and len(running) < 2 * self.num_workers and not stop.is_set():
                    job, number = waiting.popleft()
                    log = log_of(circumstances.results, job.cell.run_id((*job.missing, *job.untuned)[0]))
                    begun = pool.schedule(_execute, args=[job, circumstances, number, log], timeout=self.timeout_s)
                    running[begun] = job, number
                if stop.is_set():
                    for future in list(running):
                        if not future.running() and future.cancel():
                            del running[future]
                wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in [future for future in running if future.done()]:
                    job, number = running.pop(future)
                    event = self._ended(future, job, number, circumstances)
                    if event is None:
                        waiting.appendleft((job, number + 1))
                    else:
                        yield event
            pool.close()
        finally:
            pool.stop()
            pool.join()

    def _ended(
        self, future: ProcessFuture[list[Outcome]], job: Job, number: int, circumstances: Circumstances
    ) -> JobEvent | None:
        """What became of a job, or None if it should be tried again."""
        try:
            return JobEvent(job, future.result())
        except JobTimeout:
            failure = Failure("timeout", "JobTimeout", f"killed after {self.timeout_s} s")
        except ProcessExpired as problem:
            if number < MAX_ATTEMPTS:
                return None
            failure = Failure("error", "WorkerDied", f"its worker died {number} times, exit code {problem.exitcode}")
        except ContractError as problem:
            failure = Failure("contract", "ContractError", str(problem))
        store = Store.open(circumstances.results, create=True)
        return JobEvent(job, record_failure(job, failure, driver_attempt(circumstances, number), store))


def _execute(job: Job, circumstances: Circumstances, number: int, log: Path) -> list[Outcome]:
    with contained(log):
        return execute(job, circumstances, number)


def _initialise_worker() -> None:
    torch.set_num_threads(1)
    # Ctrl-C goes to the whole process group; the driver decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
