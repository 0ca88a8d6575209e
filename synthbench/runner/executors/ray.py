"""Runs jobs as Ray tasks, on a private cluster on this machine or on a running cluster at a given address.

Ray itself does not retry failed tasks; the rules for retries are in ``base``.
"""

import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, no_type_check

import ray
import torch
from ray.exceptions import LocalRayletDiedError, OutOfMemoryError, RayError, RayTaskError

from synthbench.errors import ClusterLost, SynthbenchError, UsageError
from synthbench.process import WORKSPACE
from synthbench.runner.environment import usable_cores
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

OBJECT_STORE_BYTES = 80 * 2**20
"""Shared memory of a private cluster: jobs and outcomes take kilobytes, but Ray requires at least 75 MiB."""

CONNECT_S = 10.0
"""Limit on the wait for a named cluster to answer, in seconds."""

PATIENCE_S = 300.0
"""Limit on the wait for a cluster without room for any job, in seconds."""


AGAIN = "the same command runs what is missing"


@dataclass(eq=False)
class Task:
    """A job that was submitted to Ray.

    The worker sends two answers. It sends the first when it begins the job; only then does the time limit start. The
    second is the result.
    """

    answers: ray.ObjectRefGenerator
    begun_at: float | None = None
    """``time.monotonic()`` when a worker began; None before."""
    is_late: bool = False
    end: list["ray.ObjectRef[Any]"] = field(default_factory=list)
    """The final answer; empty until it arrives."""


class Ray(WorkerExecutor[Task]):
    """Runs each job as a Ray task, on the cores of a cluster or on parts of its GPUs.

    Without an address, a private cluster is started on this machine, even if ``RAY_ADDRESS`` is set. The private
    cluster is protected by a secret token, and is stopped after the command's jobs. If this process is already
    connected to Ray, that connection is used, even if an address is given. All machines of a cluster must see the
    results folder under the same path, and have the same version of synthbench.

    Args:
        num_workers: Number of tasks that run at once; None for as many as the cluster has room for.
        timeout_s: Seconds after which a job is killed; None for no limit.
        address: ``host:port`` of a running cluster, or ``auto`` for the cluster that ``RAY_ADDRESS`` names or Ray
            finds; None for a private cluster.
        gpu_fraction: Fraction of a GPU, and of the GPU's memory, that each job may use.

    Raises:
        UsageError: If the address contains ``://``, since Ray Client is not supported.
    """

    name: ClassVar = "ray"

    def __init__(
        self,
        num_workers: int | None,
        timeout_s: float | None = None,
        address: str | None = None,
        gpu_fraction: float = 1.0,
    ) -> None:
        if address is not None and "://" in address:
            raise UsageError(f"address is {address!r}; allowed: host:port, or auto; run the command on the cluster")
        self.limit = self.num_workers = num_workers
        self.timeout_s = timeout_s
        self.address = address
        self.gpu_fraction = gpu_fraction

    @classmethod
    def for_request(cls, request: Request, slots: Sequence[Any]) -> "Ray":  # noqa: ARG003 - Ray divides the GPUs
        """Make an executor with the requested number of workers.

        By default, a cluster at a given address runs as many jobs as it has room for; without an address, a private
        cluster runs one job per core.
        """
        here = usable_cores() if request.address is None else None
        return cls(request.workers or here, request.timeout_s, request.address, 1 / (request.per_gpu or 1))

    @contextmanager
    def workers(self, context: RunContext) -> Iterator[None]:
        """Connect to a cluster, or start a private cluster, for the duration of a ``with`` block.

        If this process is already connected to Ray, that connection is used, and stays open.
        """
        # A worker sees only the GPU that it was given, as its first.
        self._context = context = replace(context, device=torch.device(context.device).type)
        is_ours = not ray.is_initialized()
        if is_ours:
            os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry
            if self.address is None:
                self._start(context)
            else:
                self._connect(self.address)
        self._has_room_at = time.monotonic()
        self._share = 1.0 if context.is_alone else self.gpu_fraction
        self._needs: dict[str, float] = {"num_cpus": 1}
        if context.device == "cuda":
            self._needs["num_gpus"] = self._share
        ours = {name: value for name, value in os.environ.items() if name.startswith(("SYNTHBENCH_", WORKSPACE))}
        self._work = ray.remote(_work).options(
            **self._needs,
            num_returns="streaming",
            max_retries=0,
            # Ray keeps processes of other environments apart, also on a connection that outlives this command.
            runtime_env={"env_vars": {**ours, **WORKER_ENVIRONMENT, "SYNTHBENCH_FOREIGN": ",".join(context.foreign)}},
        )
        try:
            yield
        finally:
            if is_ours:
                ray.shutdown()

    def _start(self, context: RunContext) -> None:
        """Start a cluster on this machine that nobody else can use."""
        if not os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}:
            # Else Ray writes one to the home folder, which may be read-only.
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        os.environ.setdefault("RAY_worker_niceness", "0")  # else any other program here goes before the jobs
        ray.init(
            address="local",
            num_cpus=self.limit,
            num_gpus=torch.cuda.device_count() if context.device == "cuda" else 0,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
        )

    def _connect(self, address: str) -> None:
        """Connect to the running cluster at an address.

        Raises:
            UsageError: If there is no cluster at the address, or the connection is refused.
        """
        try:
            if address != "auto":  # Ray itself takes a minute to say that nobody answers
                host, _, port = address.rpartition(":")
                socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, OverflowError, RuntimeError, RayError) as problem:
            ray.shutdown()  # of what it began before it raised
            reason = " ".join(str(problem).split())  # it says on many lines that versions differ
            raise UsageError(
                f"no Ray cluster at {address!r} that can be joined: {reason}; allowed: host:port, or auto"
            ) from None

    def capacity(self) -> int:
        """Return how many jobs the cluster can run at the same time, limited to the requested number of workers.

        The result may change, since machines may join or leave the cluster. It is 1 if there is no room now.

        Raises:
            ClusterLost: If the cluster has had no room for any job for ``PATIENCE_S`` seconds.
        """
        has = ray.cluster_resources()
        room = min(int(has.get(_RESOURCES[name], 0) / amount) for name, amount in self._needs.items())
        now = time.monotonic()
        if room:
            self._has_room_at = now
        elif now - self._has_room_at > PATIENCE_S:
            raise ClusterLost(f"the Ray cluster has had no machine with room for a job for {PATIENCE_S:g} s; {AGAIN}")
        self.num_workers = max(1, min(room, self.limit or room))
        return self.num_workers

    def begin(self, attempt: Try) -> Task:
        """Submit a job."""
        log = log_of_job(attempt.job, self._context)
        return Task(self._work.remote(attempt, self._context, log, self._share))

    def withdraw(self, handle: Task) -> bool:
        """Cancel a job in the queue and return True, or return False if the job has begun."""
        if handle.begun_at is not None:
            return False
        ray.cancel(handle.answers)
        return True

    def ended(self, handles: Iterable[Task]) -> list[Task]:
        """Return the jobs that have ended, after a short wait; kill jobs that reached their time limit."""
        tasks = {task.answers: task for task in handles}
        if not tasks:
            return []
        ready, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=0)
        if not ready:
            ready, _ = ray.wait(list(tasks), timeout=POLL_S)
        for answers in ready:
            self._hear(tasks[answers])
        for task in tasks.values():
            self._end_late(task)
        return [task for task in tasks.values() if task.end]

    def _hear(self, task: Task) -> None:
        """Take the next answer of a task: that a worker has begun, or the result."""
        answer = next(task.answers)
        if task.begun_at is None:
            with contextlib.suppress(RayError):
                ray.get(answer)
                task.begun_at = time.monotonic()
                return
        task.end.append(answer)

    def _end_late(self, task: Task) -> None:
        limit = self.timeout_s
        if limit is None or task.begun_at is None or task.is_late:
            return
        if time.monotonic() - task.begun_at > limit:
            task.is_late = True
            ray.cancel(task.answers, force=True)  # its end is waited for, so that it writes no row after ours

    def result(self, handle: Task) -> list[RunOutcome]:
        """Return the outcomes of a job, or raise an error that says how its worker ended."""
        try:
            answer: list[RunOutcome] | SynthbenchError | OutOfMemoryBesideOthers = ray.get(handle.end[0])
        except LocalRayletDiedError:
            raise ClusterLost(f"Ray's daemon on this machine has died, so no job can be given away; {AGAIN}") from None
        except RayTaskError:
            raise  # a bug in synthbench: errors of mechanisms become rows
        except RayError as problem:
            if handle.is_late:
                raise TimeoutError(f"killed after {self.timeout_s} s") from None
            status = "oom" if isinstance(problem, OutOfMemoryError) else "error"
            raise WorkerLost(f"{type(problem).__name__}: {problem}", status) from None
        if isinstance(answer, SynthbenchError | OutOfMemoryBesideOthers):
            raise answer
        return answer


_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU"}


@no_type_check  # a checker wraps it, and Ray must see that it yields
def _work(
    attempt: Try, context: RunContext, log: Path, gpu_fraction: float
) -> Iterator[list[RunOutcome] | SynthbenchError | OutOfMemoryBesideOthers | None]:
    """Yield None when a worker begins, then the outcomes or an error.

    An error is yielded, not raised, because Ray would wrap a raised one.
    """
    # Ray ends a worker whose driver is gone by raising SystemExit wherever it is, as a mechanism may do, too.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    yield None
    torch.set_num_threads(1)
    if context.device == "cuda" and gpu_fraction < 1:
        torch.cuda.set_per_process_memory_fraction(gpu_fraction)
    try:
        yield work(attempt, context, log)
    except (SynthbenchError, OutOfMemoryBesideOthers) as problem:
        yield problem
