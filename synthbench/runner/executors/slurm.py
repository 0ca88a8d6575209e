"""Runs jobs as an array of a SLURM cluster, through submitit: every element of the array is a pool with its own jobs.

The driver and the elements talk through a private folder beside the rows: an element notes there the outcomes of each
job, one line of JSON per job. The driver puts a file there when no further job is to begin. What we raise in an element
is its answer. The elements outlive a driver that is killed, and go on writing rows.
"""

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, ClassVar
from uuid import uuid4

import submitit
import torch
from submitit.core.utils import FailedSubmissionError

from synthbench.errors import SynthbenchError, UsageError
from synthbench.runner.executors.base import (
    POLL_S,
    Executor,
    JobDone,
    Try,
    WorkerLost,
    check_code,
    end_of,
    log_of_job,
)
from synthbench.runner.executors.pool import Pool
from synthbench.runner.plan import Job
from synthbench.runner.request import Request
from synthbench.runner.worker import RunContext, RunOutcome

FOLDER = "slurm"
"""Folder within the results folder, through which the arrays of a command and its driver exchange files."""

CLUSTERS = ("slurm", "local")

NUM_ELEMENTS = 8
"""Of an array on a cluster, unless the number of workers is given."""

LONGEST_MIN = 24 * 60
"""Minutes that an element asks for; ``SBATCH_TIMELIMIT`` says otherwise. What is left then goes into another array."""


@dataclass(frozen=True)
class Share:
    """Jobs of one element of an array."""

    jobs: tuple[Job, ...]
    logs: tuple[Path, ...]
    """Log of each."""
    context: RunContext
    timeout_s: float | None
    number: int
    """Number of the first try at its jobs."""
    notes: Path
    """File of their outcomes."""
    stop: Path
    """A file that is made when no further job is to begin."""


@dataclass(eq=False)
class Element:
    """An element that was submitted, as its driver sees it."""

    share: Share
    process: submitit.Job[SynthbenchError | None]
    num_read: int = 0
    """Bytes of its notes."""
    ended: dict[int, JobDone] = field(default_factory=dict)
    """By the job's place in the share."""

    def news(self) -> list[JobDone]:
        """The jobs that have ended since the last call."""
        if not self.share.notes.exists():
            return []
        with self.share.notes.open("rb") as file:
            file.seek(self.num_read)
            complete, end, _ = file.read().rpartition(b"\n")  # the last line may be half written
        self.num_read += len(complete + end)
        notes = [json.loads(line) for line in complete.splitlines()]
        news = {
            note["place"]: JobDone(
                self.share.jobs[note["place"]], [RunOutcome(**outcome) for outcome in note["outcomes"]]
            )
            for note in notes
        }
        self.ended |= news
        return list(news.values())

    def left(self) -> tuple[Job, ...]:
        """The jobs that it has not reported."""
        return tuple(job for place, job in enumerate(self.share.jobs) if place not in self.ended)

    def problem(self) -> Exception:
        """Explain why it has left jobs: what it answered, else that it was lost."""
        process = self.process
        has_answered = process.paths.result_pickle.exists() and process.exception() is None
        lost = WorkerLost(f"state {process.state} of {process.job_id}, see {process.paths.stderr}")
        return (process.result() if has_answered else None) or lost


class Slurm(Executor):
    """An array of jobs, each element a share of the plan on one core, or on one GPU.

    Partition, account, time and memory are those that ``SBATCH_PARTITION`` and its like name. The folder of the results
    must be on a file system that all machines see under the same path.

    Args:
        num_workers: Elements of the array; None for eight.
        timeout_s: Seconds after which a job is killed; None for no limit.
        cluster: ``slurm``, or ``local`` for processes on this machine instead, to try it out.

    Raises:
        UsageError: If the cluster is neither, or this machine has no SLURM.
    """

    name: ClassVar = "slurm"

    def __init__(self, num_workers: int | None, timeout_s: float | None = None, cluster: str = "slurm") -> None:
        if cluster not in CLUSTERS:
            raise UsageError(f"address is {cluster!r}; with executor slurm allowed: {', '.join(CLUSTERS)}")
        if cluster == "slurm" and not all(map(shutil.which, ("sbatch", "srun"))):
            raise UsageError("executor 'slurm' needs sbatch and srun, which are not here; --address local does without")
        self.num_workers: int = num_workers or NUM_ELEMENTS
        self.timeout_s = timeout_s
        self.cluster = cluster

    @classmethod
    def for_request(cls, request: Request, slots: Sequence[Any]) -> "Slurm":  # noqa: ARG003 - SLURM divides the GPUs
        """An array with one element per worker of the request."""
        return cls(request.workers, request.timeout_s, request.address or "slurm")

    def run(
        self,
        jobs: Sequence[Job],
        context: RunContext,
        stop: threading.Event,
        on_begin: Callable[[Job], None] = lambda _job: None,
    ) -> Iterator[JobDone]:
        """Submit an array, and another one of what is left if an element is lost."""
        if not jobs:
            return
        for job in jobs:  # an element begins whenever the cluster lets it
            on_begin(job)
        # An element sees only the GPU that it was given, as its first.
        context = replace(context, device=torch.device(context.device).type)
        folder = context.results / FOLDER / uuid4().hex
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir(mode=0o700)  # anyone who can write here can have code run
        is_stop_asked = folder / "stop"
        has_given_up = False
        try:
            elements = self._submit(jobs, context, 1, folder)
            while elements:
                if stop.is_set() and not is_stop_asked.exists():
                    is_stop_asked.touch()
                    for element in elements:
                        if element.process.state == "PENDING":
                            element.process.cancel(check=False)
                time.sleep(POLL_S)
                for element in list(elements):
                    is_over = element.process.done()
                    yield from element.news()
                    if is_over:
                        elements.remove(element)
                        events, again = self._ended(element, folder, stop)
                        yield from events
                        elements += again
                        has_given_up = has_given_up or bool(events)
        finally:
            with suppress(OSError):
                is_stop_asked.touch()
        if not has_given_up:  # else its logs say why
            shutil.rmtree(folder, ignore_errors=True)

    def _submit(self, jobs: Sequence[Job], context: RunContext, number: int, folder: Path) -> list[Element]:
        """Deal jobs to the elements of a new array.

        Raises:
            UsageError: If SLURM does not take it.
        """
        num_elements = min(self.num_workers, len(jobs))
        dealt = [tuple(jobs[start::num_elements]) for start in range(num_elements)]  # long ones first: each gets some
        shares = [
            Share(
                jobs=hand,
                logs=tuple(log_of_job(job, context) for job in hand),
                context=context,
                timeout_s=self.timeout_s,
                number=number,
                notes=folder / f"{uuid4().hex}.jsonl",
                stop=folder / "stop",
            )
            for hand in dealt
        ]
        executor = submitit.AutoExecutor(folder, cluster=self.cluster)
        executor.update_parameters(
            name="synthbench",
            timeout_min=LONGEST_MIN,
            cpus_per_task=1,
            gpus_per_node=int(context.device == "cuda"),
        )
        if self.cluster == "slurm":
            executor.update_parameters(slurm_array_parallelism=num_elements)
        try:
            with _deaf_to_interrupts():
                processes = executor.map_array(run_share, shares)
        except (FailedSubmissionError, CalledProcessError) as problem:
            raise UsageError(f"SLURM does not take the array: {problem}") from None
        return [Element(share, process) for share, process in zip(shares, processes, strict=True)]

    def _ended(self, element: Element, folder: Path, stop: threading.Event) -> tuple[list[JobDone], list[Element]]:
        """Decide about jobs that an element has left: those that end here, and the elements that try again.

        Raises:
            StoreError: If the element could not write a row, or the driver cannot.
        """
        left, share = element.left(), element.share
        if not left:
            return [], []
        problem = element.problem()
        if isinstance(problem, WorkerLost):
            if stop.is_set():
                return [], []
            if element.ended:  # it came along: its time was up, or its machine died, and not of its first job
                return [], self._submit(left, share.context, share.number, folder)

        def result() -> list[RunOutcome]:
            raise problem

        ends = [end_of(Try(job, share.number), result, share.context) for job in left]
        again = [end.job for end in ends if isinstance(end, Try)]
        return (
            [end for end in ends if isinstance(end, JobDone)],
            self._submit(again, share.context, share.number + 1, folder) if again else [],
        )


def run_share(share: Share) -> SynthbenchError | None:
    """Run an element; None, or why it could not, which would not stay itself if it were raised."""
    pool = Pool(1, share.timeout_s, share.number)
    try:
        for job, log in zip(share.jobs, share.logs, strict=True):
            check_code(job, share.context, log)
        with share.notes.open("a", encoding="utf-8") as notes:
            for event in pool.run(share.jobs, share.context, _StopFile(share.stop)):
                outcomes = list(map(asdict, event.outcomes))
                notes.write(json.dumps({"place": share.jobs.index(event.job), "outcomes": outcomes}) + "\n")
                notes.flush()
    except SynthbenchError as problem:
        return problem
    return None


class _StopFile(threading.Event):
    """Set as soon as a file exists."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def is_set(self) -> bool:
        return self._file.exists()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes begun in here do not hear Ctrl-C, which goes to the whole group: their driver decides what it means."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
