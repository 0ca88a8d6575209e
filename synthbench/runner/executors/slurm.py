"""Runs jobs as a job array on a SLURM cluster, through submitit; each element of the array runs some of the jobs.

The driver (the process of the command) and the elements exchange files in a private folder beside the rows. An element
writes the outcomes of its jobs there, one line of JSON per job. The driver creates a file there when no further job
should begin. If the driver is killed, the elements run on and keep writing rows.
"""

import json
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
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
    IsStopped,
    JobDone,
    OnBegin,
    Try,
    WorkerLost,
    check_code,
    end_of,
    log_of_job,
)
from synthbench.runner.executors.pool import Pool
from synthbench.runner.plan import Job
from synthbench.runner.request import Request, RunContext
from synthbench.runner.worker import RunOutcome

FOLDER = "slurm"
"""Folder, inside the results folder, through which the driver and the elements of its arrays exchange files."""

CLUSTERS = ("slurm", "local")

NUM_ELEMENTS = 8
"""Number of elements of an array, unless the number of workers is given."""

LONGEST_MIN = 24 * 60
"""Minutes that an element requests unless ``SBATCH_TIMELIMIT`` is set; jobs not finished in time get a new array."""


@dataclass(frozen=True)
class Share:
    """The jobs and settings of one element of a job array."""

    jobs: tuple[Job, ...]
    logs: tuple[Path, ...]
    """Path of the log of each job."""
    context: RunContext
    timeout_s: float | None
    number: int
    """Number of the first try at its jobs."""
    notes: Path
    """File to which the element writes the outcomes."""
    stop: Path
    """File that the driver creates when no further job should begin."""


@dataclass(eq=False)
class Element:
    """A submitted element of a job array, as seen by the driver (the process of the command)."""

    share: Share
    process: submitit.Job[SynthbenchError | None]
    num_read: int = 0
    """Number of bytes read so far from its file of outcomes."""
    ended: dict[int, JobDone] = field(default_factory=dict)
    """Jobs that have ended, by their index in the share."""

    def news(self) -> list[JobDone]:
        """Return the jobs that have ended since the last call."""
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
        """Return the jobs that the element has not reported as ended."""
        return tuple(job for place, job in enumerate(self.share.jobs) if place not in self.ended)

    def problem(self) -> Exception:
        """Return the error that the element returned or, if it returned none, a :class:`WorkerLost`."""
        process = self.process
        has_answered = process.paths.result_pickle.exists() and process.exception() is None
        lost = WorkerLost(f"state {process.state} of {process.job_id}, see {process.paths.stderr}")
        return (process.result() if has_answered else None) or lost


class Slurm(Executor):
    """Runs jobs as a SLURM job array; each element of the array runs some of the jobs, on one core or one GPU.

    Partition, account, time and memory are taken from environment variables such as ``SBATCH_PARTITION``. All machines
    must see the results folder under the same path.

    Args:
        num_workers: Number of elements of the array; None for eight.
        timeout_s: Seconds after which a job is killed; None for no limit.
        cluster: ``slurm``, or ``local`` to try the executor with processes on this machine.

    Raises:
        UsageError: If ``cluster`` is neither ``slurm`` nor ``local``, or if it is ``slurm`` and this machine has no
            SLURM.
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
        """Make an executor whose job arrays have one element per requested worker (default: eight)."""
        return cls(request.workers, request.timeout_s, request.address or "slurm")

    def run(
        self, jobs: Sequence[Job], context: RunContext, is_stopped: IsStopped, on_begin: OnBegin = lambda _job: None
    ) -> Iterator[JobDone]:
        """Submit a job array, and yield each job when it has ended.

        If the process of an array element dies, the element's unfinished jobs are submitted as another array. Before
        the first array, ``on_begin`` is called once per job.
        """
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
                if is_stopped() and not is_stop_asked.exists():
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
                        events, again = self._ended(element, folder, is_stopped)
                        yield from events
                        elements += again
                        has_given_up = has_given_up or bool(events)
        finally:
            with suppress(OSError):
                is_stop_asked.touch()
        if not has_given_up:  # else its logs say why
            shutil.rmtree(folder, ignore_errors=True)

    def _submit(self, jobs: Sequence[Job], context: RunContext, number: int, folder: Path) -> list[Element]:
        """Distribute jobs over the elements of a new array, and submit it.

        Raises:
            UsageError: If SLURM does not accept the array.
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

    def _ended(self, element: Element, folder: Path, is_stopped: IsStopped) -> tuple[list[JobDone], list[Element]]:
        """Submit again the jobs that an element left unfinished, or give them up.

        Return the jobs that end with a failure, and the new elements that try the other jobs again.

        Raises:
            StoreError: If the element or the driver (the process of the command) cannot write a row.
        """
        left, share = element.left(), element.share
        if not left:
            return [], []
        problem = element.problem()
        if isinstance(problem, WorkerLost):
            if is_stopped():
                return [], []
            if element.ended:  # it made progress, so its first job was not the cause
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
    """Run the jobs of one element of a job array; return the error that ended the element, or None."""
    pool = Pool(1, share.timeout_s, share.number)
    try:
        for job, log in zip(share.jobs, share.logs, strict=True):
            check_code(job, share.context, log)
        with share.notes.open("a", encoding="utf-8") as notes:
            for event in pool.run(share.jobs, share.context, share.stop.exists):
                outcomes = list(map(asdict, event.outcomes))
                notes.write(json.dumps({"place": share.jobs.index(event.job), "outcomes": outcomes}) + "\n")
                notes.flush()
    except SynthbenchError as problem:
        return problem
    return None


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Make processes that start in the ``with`` block ignore Ctrl-C; the process of the command handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
