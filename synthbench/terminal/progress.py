"""Progress on stderr: a bar in a terminal, a line a row elsewhere, and a heartbeat when rows are slow."""

import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from synthbench.runner.executors import Executor, Inline
from synthbench.runner.outlook import Outlook
from synthbench.runner.plan import Plan
from synthbench.runner.worker import Outcome

HEARTBEAT_S = 30.0


class Progress:
    """Counts rows as they come and says when the rest will be there, as soon as something is known of that."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Bar | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._outlook = Outlook(Plan((), 0, 0))
        self._num_done = self._num_failed = self._num_rows = 0
        self._executor: Executor = Inline()
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
        self._outlook = Outlook(plan)
        where = f"{executor.name}, {executor.num_workers} at a time" if executor.num_workers else executor.name
        there = f"{plan.num_missing} rows to run ({where}), {plan.num_done} are there"
        self._console.print(there + (self._eta(", ") if plan.num_missing else ""), highlight=False)
        for notice in plan.notices:
            self._console.print(notice, highlight=False, markup=False, soft_wrap=True)
        if self._console.is_terminal and plan.num_missing:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}"),
                console=self._console,
            )
            self._bar.start()
            self._bar.add_task("rows", total=plan.num_missing, note=self._eta())
        else:
            threading.Thread(target=self._beat, daemon=True).start()

    def advance(self, outcome: Outcome) -> None:
        """Count a row."""
        with self._lock:
            self._num_done += 1
            self._num_failed += outcome.status != "ok"
            self._outlook.see(outcome)
        if self._bar is not None:
            failed = f"{self._num_failed} failed  " if self._num_failed else ""
            self._bar.update(self._bar.task_ids[0], advance=1, note=failed + self._eta())
            return
        score = "" if outcome.score is None else f" {outcome.score:.4f}"
        self._line(f"{outcome.task} {outcome.mechanism} seed {outcome.seed} {outcome.status}{score}")

    def _eta(self, before: str = "") -> str:
        """``ETA 1:02:03``, or nothing where nothing is known."""
        with self._lock:
            left_s = self._outlook.left_s()
        return "" if left_s is None else f"{before}ETA {clock(left_s / (self._executor.num_workers or 1))}"

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        head = f"[{self._num_done}/{self._num_rows}{self._eta(', ')}]"
        self._console.print(f"{head} {text}", highlight=False, markup=False, soft_wrap=True)

    def _beat(self) -> None:
        while not self._stopped.wait(1.0):
            if time.monotonic() - self._last_line >= HEARTBEAT_S:
                self._line("still running")


def clock(seconds: float) -> str:
    """Seconds as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
