"""A few short runs, and what of their rows must be the same."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from synthbench.process import _parents
from synthbench.results import Store
from synthbench.runner.estimates import Estimates
from synthbench.runner.plan import Job, plan_request
from synthbench.runner.request import Request, RunContext
from synthbench.training.cell import Cell

FAULTS = Path(__file__).parents[1] / "plugins" / "faults.py"
"""A plugin whose mechanisms misbehave."""

MAY_DIFFER = (
    *("executor", "attempt", "started_at", "finished_at", "peak_mem_bytes", "row_sha256", "curve_sha256"),
    *("wall_s", "queue_s", "train_s", "eval_s", "data_s", "step_ms_median", "tokens_per_s", "plugins_loaded"),
    *("git_sha", "git_dirty"),  # somebody may commit meanwhile
)
"""Columns that say who made a row, when and beside what, and how long it took."""


def tiny(results: Path, **changes: Any) -> Request:
    """Two tasks that share a program and differ in vocabulary and scored positions: four rows in a second."""
    base: dict[str, Any] = {
        "suite": "smoke", "tasks": ("copy:length=8,majority:length=8",), "mechanisms": ("linear",), "steps": 5,
        "limit": 32, "device": "cpu", "results": results,
    }  # fmt: skip
    return Request(**(base | changes))


one_by_one = partial(tiny, steps=10, group_size=1)
"""Four jobs of one row each."""


def planned(asked: Request, executor: str) -> tuple[Sequence[Job], RunContext]:
    """Input of an executor; nothing is examined before, which would take a process of its own."""
    Store.open(asked.results, create=True)
    jobs = plan_request(asked, torch.device("cpu")).jobs
    return jobs, RunContext(asked.results, "cpu", executor, time.time(), plugins=asked.plugins)


def job_of(*cells: Cell, seeds: Iterable[int] = (0, 1), num_done: int = 0) -> Job:
    """The runs of some cells as one program, the first of which are done."""
    runs = tuple(run for cell in cells for run in cell.runs([*seeds]))
    return Job(cells, runs, runs[num_done:], group_size=len(runs))


class Known(Estimates):
    """Estimates that a function gives by cell, in seconds or None."""

    def __init__(self, seconds: Callable[[Cell], float | None]) -> None:
        super().__init__()
        self.seconds = seconds  # type: ignore[assignment, method-assign]


def lasting(*folders: Path, but: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """All else of the rows of stores, and of the points of their curves: to the last bit, whoever ran the jobs.

    Nothing is damaged, and no row there twice.
    """
    rows, points = list[dict[Any, Any]](), list[dict[Any, Any]]()
    for folder in folders:
        store = Store.open(folder, create=False)
        rows += store.table().drop_columns([*MAY_DIFFER, *but]).to_pylist()
        points += store.curves().drop(columns="wall_s").to_dict("records")
        assert store.quarantined == []
    run_id = itemgetter("run_id")
    assert len(set(map(run_id, rows))) == len(rows)
    return [repr(row) for row in sorted(rows, key=run_id)], [repr(point) for point in sorted(points, key=run_id)]


def interrupted(asked: Request, *more: str, most: int, is_to_all: bool, env: dict[str, str] | None = None) -> str:
    """Press Ctrl-C when a command has made its first row: it ends with some rows, all whole; its standard output."""
    driver = subprocess.Popen(
        command(asked, *more),
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    assert driver.stderr is not None
    for line in driver.stderr:
        if line.startswith("[rows 1/"):
            break
    if is_to_all:
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
    else:
        driver.send_signal(signal.SIGINT)
    output, rest = driver.communicate()

    assert driver.returncode == 130, rest
    assert "the same command runs the rest" in rest
    rows = Store.open(asked.results, create=False).runs()
    assert 1 <= len(rows) < most
    assert set(rows.status) == {"ok"}
    return output


def wait_until(is_so: Callable[[], bool], what: str, patience_s: float = 200.0) -> None:
    """Wait until something is so."""
    until = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    """Return whether a process runs; one that has ended and was not waited for does not."""
    return process in _parents()


def plugin_text(name: str) -> str:
    """Source of a plugin: one mechanism, in which every position keeps to itself."""
    words = name.split("-")
    return f"""
import torch
from synthbench.layers import Linear
from synthbench.mechanisms import Mechanism, mechanism

@mechanism
class {"".join(map(str.capitalize, words))}(Mechanism):
    name = "{name}"
    label = "{" ".join(words).capitalize()}"
    family = "control"
    source = "unpublished"

    def initialise(self, generator):
        self.out = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)

    def forward(self, x):
        return self.out(x)

    def state_elements(self, length):
        return 0
"""


def command(request: Request, *more: str) -> list[str]:
    """Command line of a request, with further options."""
    words = [
        sys.executable, "-m", "synthbench", "run", "--suite", request.suite, "--task", ",".join(request.tasks),
        "--mech", ",".join(request.mechanisms), "--steps", str(request.steps), "--limit", str(request.limit),
        "--device", request.device, "--results", str(request.results), "--executor", request.executor, "--batched", "1",
    ]  # fmt: skip
    return [*words, *(("--address", request.address) if request.address else ()), *more]
