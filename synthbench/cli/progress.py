"""Progress on stderr: a bar in a terminal, otherwise one line for each run that has ended.

Each run writes one row of results. Without a terminal, a line is also printed if no row comes for 30 seconds.
"""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Container, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from synthbench.cli.output import about
from synthbench.errors import StoreError
from synthbench.results import Store
from synthbench.runner.executors import Executor
from synthbench.runner.plan import Plan
from synthbench.runner.worker import RunOutcome, outcome_of
from synthbench.training.cell import Cell, Run

HEARTBEAT_S = 30.0
LOOK_S = 1.0
"""Interval at which the store is searched for new rows, in seconds."""
NUM_LATEST = 100
"""Number of latest rows that an estimate uses, since the machine's load changes."""

Latest = partial(deque[float], maxlen=NUM_LATEST)


class Eta:
    """Estimate of the time left: the sum of the expected durations of all trainings that are still to be done.

    Trainings that only choose a learning rate are included. The expected duration of a training is the median duration
    of finished trainings of the same task and mechanism. If there are none, it is the plan's estimate, multiplied by
    the median ratio of measured to estimated time. The ratios come from the same mechanism if possible, or else from
    its family, or else from all mechanisms.
    """

    def __init__(self, plan: Plan) -> None:
        cells = dict.fromkeys(cell for job in plan.jobs for cell in job.cells)
        self._costs = {cell: plan.estimates.cost(cell) for cell in cells}
        self._is_timed = all(plan.estimates.seconds(cell) is not None for cell in cells)
        self._left: dict[str, tuple[Cell, int]] = {}
        """Cell (task and mechanism) of each missing row, and the number of trainings that the row ends, by row id."""
        self._tuning_ids: dict[str, Collection[str]] = {}
        for job in plan.jobs:
            tuning = _trainings(job.untuned, job.untuned)
            rows = {name: part for group in job.groups for name, part in _trainings(group, {*job.missing}).items()}
            self._left |= {**tuning, **rows}
            self._tuning_ids |= dict.fromkeys(rows, tuple(tuning))
        self.num_trainings = self.num_left
        self._seconds: dict[Cell, deque[float]] = defaultdict(Latest)
        self._slowness: dict[object, deque[float]] = defaultdict(Latest)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Ids of the rows still to be written, including rows of runs that only choose a learning rate."""
        return tuple(self._left)

    @property
    def num_left(self) -> int:
        """Number of trainings still to be done."""
        return sum(num_trainings for _, num_trainings in self._left.values())

    def record(self, outcome: RunOutcome, *, is_last: bool = False) -> None:
        """Record that a run's row was written; recording the same row twice has no effect.

        Args:
            outcome: The outcome of the run, as in its row.
            is_last: True if the job of this run has ended. Tuning runs of the job (which only choose a learning rate)
                that have no row by then are no longer expected.
        """
        if outcome.run_id in self._left:
            cell, _ = self._left.pop(outcome.run_id)
            self._seconds[cell].append(outcome.share_s)
            if outcome.status in ("ok", "diverged"):  # the time until a failure says nothing about other cells
                for kin in _kin(cell):
                    self._slowness[kin].append(outcome.share_s / self._costs[cell])
        for name in self._tuning_ids.pop(outcome.run_id, ()) if is_last else ():
            self._left.pop(name, None)

    def left_s(self) -> float | None:
        """Return the seconds that one worker alone would need for all missing rows; None if a time is unknown."""
        left: Counter[Cell] = Counter()
        for cell, num_trainings in self._left.values():
            left[cell] += num_trainings
        seconds = {cell: self._training_s(cell) for cell in left}
        known = {cell: training_s for cell, training_s in seconds.items() if training_s is not None}
        return sum((known[cell] * left[cell] for cell in left), 0.0) if len(known) == len(left) else None

    def _training_s(self, cell: Cell) -> float | None:
        if self._seconds[cell]:
            return median(self._seconds[cell])
        slowness = next((self._slowness[kin] for kin in _kin(cell) if self._slowness[kin]), None)
        if slowness is not None:
            return self._costs[cell] * median(slowness)
        return self._costs[cell] if self._is_timed else None


def _kin(cell: Cell) -> tuple[object, ...]:
    """Return the keys under which ratios of measured to estimated time are kept, the most specific key first.

    The keys are the mechanism of the cell (a mechanism on a task), its family, and None, which stands for all
    mechanisms.
    """
    return cell.mechanism, cell.mechanism.family, None


def _trainings(together: Sequence[Run], missing: Container[Run]) -> dict[str, tuple[Cell, int]]:
    """Map the id of each missing row to its cell (task × mechanism) and to the number of trainings that it stands for.

    The runs ``together`` train as one program, even those whose rows exist. The trainings of these are counted with the
    first missing row.
    """
    rows = [run for run in together if run in missing]
    num_again = len(together) - len(rows)
    return {run.run_id: (run.cell, 1 + num_again * (run is rows[0])) for run in rows}


class Watch:
    """Watcher of a results store, which finds new rows while the job that writes them is still running.

    A row is the result of one run. A job is a group of runs that one worker trains. Rows of runs that only choose a
    learning rate are found too.

    Args:
        results: Folder of the store.
        run_ids: Ids of the rows to wait for, none of them in the store yet.
    """

    def __init__(self, results: Path, run_ids: Collection[str]) -> None:
        self._store = Store.open(results, create=False)
        self._waiting = set(run_ids)
        self._seen = set(self._store.loose())

    def new_rows(self) -> list[RunOutcome]:
        """Return the outcomes of the rows written since the last call; fast if there are none."""
        files = set(self._store.loose()) - self._seen
        self._seen |= files
        rows = [row for row in self._store.rows_in(sorted(files)) if row["run_id"] in self._waiting]
        self._waiting -= {row["run_id"] for row in rows}
        return [outcome_of(row) for row in rows]


class Progress:
    """Display of the numbers of finished trainings and rows, and of the estimated time left if it is known.

    Args:
        results: Folder of the results store that the workers write to.
        is_quiet: True to print nothing.
        is_verbose: True to print one line per row, with the row's id, even in a terminal.
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
        self._watch = Watch(self._results, self._eta.run_ids)
        if self._console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn(), console=self._console
            )
            self._bar.start()
            self._bar.add_task(self._state(), total=self._eta.num_trainings)
        threading.Thread(target=self._beat, daemon=True).start()

    def advance(self, outcome: RunOutcome) -> None:
        """Count a row as done and show it, after its job has ended."""
        with self._lock:
            self._num_done += 1
            self._num_failed += outcome.status != "ok"
            self._eta.record(outcome, is_last=True)
        self._redraw()
        if self._bar is None or self._is_verbose:
            score = "" if outcome.score is None else f" {outcome.score:.4f}"
            name = f" {outcome.run_id}" if self._is_verbose else ""
            rate = "" if outcome.learning_rate is None else f" rate {outcome.learning_rate:g}"
            words = f"{outcome.task} {outcome.mechanism} seed {outcome.seed}{rate} {outcome.status}{score}{name}"
            self._line(words)

    def look(self) -> None:
        """Find the rows written to the store since the last call, and count their trainings as done."""
        with suppress(OSError, StoreError):  # the process that runs the jobs meets this error too, and reports it
            news = self._watch.new_rows() if self._watch is not None else []
            with self._lock:
                for outcome in news:
                    self._eta.record(outcome)
            if news:
                self._redraw()

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
            self._stopped.wait(20 * (time.monotonic() - began))  # do not keep a slow file system busy


def to_do(plan: Plan) -> str:
    """Describe the missing runs of a plan: ``240 runs to do after 384 tuning runs``.

    Tuning runs only choose a learning rate.
    """
    num_tuning = sum(len(job.untuned) for job in plan.jobs)
    runs = f"{plan.num_missing} {'run' if plan.num_missing == 1 else 'runs'} to do"
    return f"{runs} after {num_tuning} tuning {'run' if num_tuning == 1 else 'runs'}" if num_tuning else runs


def workers_of(executor: Executor) -> str:
    """Describe the workers of an executor in words, such as ``2 workers``.

    The text is ``in this process`` if there are no worker processes, and the executor's name if their number is
    unknown.
    """
    if executor.name == "inline":
        return "in this process"
    if executor.num_workers is None:
        return executor.name
    workers = f"{executor.num_workers} {'worker' if executor.num_workers == 1 else 'workers'}"
    return workers if executor.name == "pool" else f"{workers} of {executor.name}"
