"""Progress on stderr: a bar in a terminal, one line per row elsewhere, and a heartbeat when rows are slow."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from synthbench.errors import StoreError
from synthbench.runner.eta import Eta, Watch
from synthbench.runner.executors import Executor
from synthbench.runner.plan import Plan
from synthbench.runner.worker import Outcome
from synthbench.terminal.layout import about

HEARTBEAT_S = 30.0
LOOK_S = 1.0
"""Between two looks for rows in the store."""


class Progress:
    """Counts trainings and rows, and says when the rest will be done as soon as something is known of that.

    Args:
        results: Folder of the store that the workers write to.
        is_quiet: Print nothing.
        is_verbose: Print one line per row in a terminal too, with its id.
    """

    def __init__(self, results: Path, *, is_quiet: bool = False, is_verbose: bool = False) -> None:
        self._results = results
        self._is_verbose = is_verbose
        self._console = Console(stderr=True, quiet=is_quiet)
        self._bar: Bar | None = None
        self._stopped = threading.Event()
        self._lock = threading.RLock()
        self._eta: Eta
        self._watch: Watch | None = None
        self._num_done = self._num_failed = self._num_rows = 0
        self._executor: Executor
        self._last_line = time.monotonic()

    def __enter__(self) -> "Progress":  # noqa: PYI034 - the shape checker of the tests cannot resolve Self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._bar is not None:
            self._bar.stop()

    def begin(self, plan: Plan, executor: Executor) -> None:
        """Take note of what will come."""
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
        self._watch = Watch(self._results, self._eta.run_ids)
        if self._console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn(), console=self._console
            )
            self._bar.start()
            self._bar.add_task(self._state(), total=self._eta.num_trainings)
        threading.Thread(target=self._beat, daemon=True).start()

    def advance(self, outcome: Outcome) -> None:
        """Count a row of a job that has ended."""
        with self._lock:
            self._num_done += 1
            self._num_failed += outcome.status != "ok"
            self._eta.end(outcome)
        self._redraw()
        if self._bar is None or self._is_verbose:
            score = "" if outcome.score is None else f" {outcome.score:.4f}"
            name = f" {outcome.run_id}" if self._is_verbose else ""
            self._line(f"{outcome.task} {outcome.mechanism} seed {outcome.seed} {outcome.status}{score}{name}")

    def look(self) -> None:
        """Count the rows that appeared in the store since the last look."""
        with suppress(OSError, StoreError):  # who runs the jobs meets that too, and says so
            news = self._watch.news() if self._watch is not None else []
            with self._lock:
                for outcome in news:
                    self._eta.see(outcome)
            if news:
                self._redraw()

    def _state(self) -> str:
        """``trainings 37/624 · rows 3/240 · about 31 min left``; trainings are left out where each gives a row."""
        with self._lock:
            num = self._eta.num_trainings
            num_done = num - self._eta.num_left
            parts = [] if num == self._num_rows else [f"trainings {num_done}/{num}"]
            parts.append(f"rows {self._num_done}/{self._num_rows}")
            if self._num_failed:
                parts.append(f"{self._num_failed} failed")
            return " · ".join(parts) + self._left(" · ", " left")

    def _left(self, before: str, after: str) -> str:
        """``about 31 min`` between two other texts, or nothing where nothing is known."""
        with self._lock:
            left_s = self._eta.left_s() if self._eta.num_left else None
        return "" if left_s is None else f"{before}{about(left_s / (self._executor.num_workers or 1))}{after}"

    def _redraw(self) -> None:
        if self._bar is None:
            return
        with self._lock:
            completed = self._eta.num_trainings - self._eta.num_left
        self._bar.update(self._bar.task_ids[0], completed=completed, description=self._state())

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(f"[{self._state()}] {text}", highlight=False, markup=False, soft_wrap=True)

    def _beat(self) -> None:
        while not self._stopped.wait(LOOK_S):
            began = time.monotonic()
            self.look()
            if self._bar is None and time.monotonic() - self._last_line >= HEARTBEAT_S:
                self._line("still running")
            self._stopped.wait(20 * (time.monotonic() - began))  # a slow file system is not to be kept busy


def to_do(plan: Plan) -> str:
    """Say what a plan lacks: ``240 runs to do after 384 tuning runs``."""
    num_tuning = sum(len(job.untuned) for job in plan.jobs)
    runs = f"{plan.num_missing} {'run' if plan.num_missing == 1 else 'runs'} to do"
    return f"{runs} after {num_tuning} tuning {'run' if num_tuning == 1 else 'runs'}" if num_tuning else runs


def workers_of(executor: Executor) -> str:
    """``2 workers``; where jobs run if there are no worker processes, or it is not known how many."""
    if executor.name == "inline":
        return "in this process"
    if executor.num_workers is None:
        return executor.name
    workers = f"{executor.num_workers} {'worker' if executor.num_workers == 1 else 'workers'}"
    return workers if executor.name == "pool" else f"{workers} of {executor.name}"
