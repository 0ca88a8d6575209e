"""Progress on stderr: a bar in a terminal, otherwise one line for each run that has ended.

Each run writes one row of results. Without a terminal, a line is also printed if no row comes for 30 seconds.
"""

import threading
import time
from collections import defaultdict

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from synthbench.cli.output import about, is_quiet, is_verbose
from synthbench.reports.table import counted
from synthbench.runner.executors import Executor
from synthbench.runner.plan import Plan
from synthbench.runner.worker import RunOutcome

HEARTBEAT_S = 30.0


class Eta:
    """Estimate of the time left: the sum of the expected durations of all trainings whose job has not ended.

    Trainings that only choose a learning rate are included. The expected duration of a training is the plan's estimate,
    multiplied by a ratio: measured time over estimated time of the finished trainings of the same mechanism. If the
    mechanism has no finished trainings, those of all mechanisms are used.
    """

    def __init__(self, plan: Plan) -> None:
        self._left = {
            run.run_id: (run.cell, len(job.trained) / len(job.missing)) for job in plan.jobs for run in job.missing
        }
        """Cell of each missing row, and number of trainings that its job makes per missing row, by run id."""
        cells = {cell for cell, _ in self._left.values()}
        self._costs = {cell: plan.estimates.cost(cell) for cell in cells}
        self._is_timed = all(plan.estimates.seconds(cell) is not None for cell in cells)
        self.num_trainings = self.num_left
        self._measured: dict[str, float] = defaultdict(float)
        self._expected: dict[str, float] = defaultdict(float)
        """Seconds of finished trainings and their estimates, by mechanism."""

    @property
    def num_left(self) -> int:
        """Number of trainings whose job has not ended."""
        return round(sum(num for _, num in self._left.values()))

    def record(self, outcome: RunOutcome) -> None:
        """Record the outcome of a run whose job has ended; recording it twice has no effect."""
        if outcome.run_id not in self._left:  # a job that a cluster started again is reported twice
            return
        cell, _ = self._left.pop(outcome.run_id)
        if outcome.status in ("ok", "diverged"):  # the time until a failure says nothing about other runs
            self._measured[cell.mechanism_name] += outcome.share_s
            self._expected[cell.mechanism_name] += self._costs[cell]

    def left_s(self) -> float | None:
        """Return the seconds that one worker alone would need for all missing rows; None if a time is unknown."""
        if not self._expected and not self._is_timed:
            return None
        return sum(num * self._costs[cell] * self._slowness(cell.mechanism_name) for cell, num in self._left.values())

    def _slowness(self, mechanism: str) -> float:
        if not self._expected:
            return 1.0
        if mechanism in self._expected:
            return self._measured[mechanism] / self._expected[mechanism]
        return sum(self._measured.values()) / sum(self._expected.values())


class Progress:
    """Display of the numbers of finished trainings and rows, and of the estimated time left if it is known.

    With ``--quiet``, nothing is printed. With ``--verbose``, each row has a line with its id, even in a terminal.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, quiet=is_quiet())
        self._bar: Bar | None = None
        self._stopped = threading.Event()
        self._lock = threading.RLock()
        self._eta: Eta
        self._num_done = self._num_failed = self._num_rows = 0
        self._executor: Executor
        self._last_line = time.monotonic()

    def __enter__(self) -> "Progress":  # noqa: PYI034 - the shape checker of the tests cannot resolve Self
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._bar is not None:
            self._bar.stop()

    def begin(self, plan: Plan, executor: Executor) -> None:
        """Start to show the progress of a plan."""
        self._num_rows = plan.num_missing
        self._executor = executor
        self._eta = Eta(plan)
        there = f"{to_do(plan)}, {plan.num_done} already done"
        is_idle = not plan.num_missing
        line = there if is_idle else f"{there} ({workers_of(executor)}){self._left(', ', '')}"
        self._console.print(line, highlight=False)
        for notice in plan.notices:
            self._console.print(notice, highlight=False, markup=False, soft_wrap=True)
        if is_idle:
            return
        if self._console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn(), console=self._console
            )
            self._bar.start()
            self._bar.add_task(self._state(), total=self._eta.num_trainings)
        else:
            threading.Thread(target=self._beat, daemon=True).start()

    def advance(self, outcome: RunOutcome) -> None:
        """Count a row as done and show it, after its job has ended."""
        with self._lock:
            self._num_done += 1
            self._num_failed += outcome.status != "ok"
            self._eta.record(outcome)
        if self._bar is not None:
            completed = self._eta.num_trainings - self._eta.num_left
            self._bar.update(self._bar.task_ids[0], completed=completed, description=self._state())
        if self._bar is None or is_verbose():
            score = "" if outcome.score is None else f" {outcome.score:.4f}"
            name = f" {outcome.run_id}" if is_verbose() else ""
            rate = "" if outcome.learning_rate is None else f" rate {outcome.learning_rate:g}"
            words = f"{outcome.task} {outcome.mechanism} seed {outcome.seed}{rate} {outcome.status}{score}{name}"
            self._line(words)

    def _state(self) -> str:
        """Return ``trainings 37/624 · rows 3/240 · about 31 min left``; omit trainings if each makes one row."""
        with self._lock:
            num = self._eta.num_trainings
            num_done = num - self._eta.num_left
            parts = [] if num == self._num_rows else [f"trainings {num_done}/{num}"]
            parts.append(f"rows {self._num_done}/{self._num_rows}")
            if self._num_failed:
                parts.append(f"{self._num_failed} failed")
            return " · ".join(parts) + self._left(" · ", " left")

    def _left(self, before: str, after: str) -> str:
        """Return the time left, such as ``about 31 min``, with the given texts before and after it.

        The text is empty if the time is unknown.
        """
        with self._lock:
            left_s = self._eta.left_s() if self._eta.num_left else None
        return "" if left_s is None else f"{before}{about(left_s / (self._executor.num_workers or 1))}{after}"

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(f"[{self._state()}] {text}", highlight=False, markup=False, soft_wrap=True)

    def _beat(self) -> None:
        while not self._stopped.wait(self._last_line + HEARTBEAT_S - time.monotonic()):
            if time.monotonic() - self._last_line >= HEARTBEAT_S:
                self._line("still running")


def to_do(plan: Plan) -> str:
    """Describe the missing runs of a plan: ``240 runs to do after 384 tuning runs``.

    Tuning runs only choose a learning rate.
    """
    num_tuning = sum(len(job.untuned) for job in plan.jobs)
    runs = f"{counted(plan.num_missing, 'run')} to do"
    return f"{runs} after {counted(num_tuning, 'tuning run')}" if num_tuning else runs


def workers_of(executor: Executor) -> str:
    """Describe the workers of an executor in words, such as ``2 workers``.

    The text is ``in this process`` if there are no worker processes, and the executor's name if their number is
    unknown.
    """
    if executor.name == "inline":
        return "in this process"
    if executor.num_workers is None:
        return executor.name
    workers = counted(executor.num_workers, "worker")
    return workers if executor.name == "pool" else f"{workers} of {executor.name}"
