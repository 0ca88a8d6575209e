"""Speed of several ways to train: run by run, batched, replayed from a CUDA graph, in processes, and as published.

Batched runs are trained together, with a leading run axis on all tensors. Published attention is computed as in its
authors' code. All rates are in run-steps per second; a run-step is one gradient step of one run at the suite's batch
size. Each ratio compares two rates of the same row.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from statistics import median
from threading import Barrier, BrokenBarrierError
from typing import Any, TypeVar

import torch

from synthbench.bench.instruments import as_in_a_worker
from synthbench.bench.published import publish
from synthbench.bench.rows import Row, Table
from synthbench.errors import UsageError
from synthbench.options import RUN_SUITE, Selection, term_of
from synthbench.registry import version_of
from synthbench.runner.environment import usable_cores
from synthbench.runner.executors.base import WORKER_ENVIRONMENT
from synthbench.runner.plan import make_cells, select_mechanisms
from synthbench.suites import Suite, load_suite
from synthbench.training.capture import WARM_UP_STEPS
from synthbench.training.cell import Cell, Run
from synthbench.training.train import Trainer

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_barrier: Barrier | None = None
TASK = "reverse"
"""Task to train on. It allows every length, and is scored at every position, so that the whole model is computed."""

IDENTITY = ("mechanism", "length", "members", "rates", "num_steps")
"""Columns that identify a row among the rows of one device."""

SHOWN = (
    *("mechanism", "length", "members", "rates", "workers", "loop", "batched", "captured", "processes", "published"),
    *("loop/published", "batched/loop", "captured/loop", "processes/loop", "not_captured"),
)
"""Columns of a row that are printed."""

LOOPED = 4
"""Limit on the runs that are timed in a plain loop; the loop's rate does not depend on the number of runs."""


def measure(
    expressions: Sequence[str],
    lengths: Sequence[int],
    table: Table,
    *,
    num_runs: Sequence[int],
    num_rates: int = 1,
    num_steps: int,
    num_repeats: int,
) -> Iterator[Row]:
    """Measure the run-steps per second of several ways to train the selected mechanisms.

    A run-step is one training step of one run. Worker processes are not timed on a GPU, since they would share its
    memory. Replaying steps from a CUDA graph is timed only on a GPU. Rows already in the table are not measured again,
    unless the mechanism's version has changed.

    Args:
        expressions: Expressions that select mechanisms; if empty, all mechanisms of the default suite.
        lengths: Sequence lengths, in tokens.
        table: Table for the rows; its device is measured.
        num_runs: Numbers of runs to train together; each gives one row per mechanism and length.
        num_rates: Number of learning rates; each seed has one run per rate.
        num_steps: Training steps per timing.
        num_repeats: Number of timings; the median rate is reported.

    Raises:
        UnknownName: If an expression names no mechanism.
        UsageError: If a length is not allowed, or a number of runs is not a multiple of ``num_rates``.
        StoreError: If the table cannot be written.
    """
    for count in num_runs:
        if count % num_rates:
            raise UsageError(f"runs are {count}; allowed with {num_rates} learning rates: a multiple of them")
    suite, device = load_suite(RUN_SUITE), table.device
    mechanisms = select_mechanisms(suite, expressions or [",".join(suite.mechanisms)])
    num_workers = usable_cores() if device.type == "cpu" else 0
    with as_in_a_worker():
        for length in lengths:
            for cell in cells_of(suite, mechanisms, length, device.type):
                term = term_of(cell.mechanism, cell.mechanism_arguments)
                for count in num_runs:
                    about = {
                        "bench": "suite",
                        "mechanism": term,
                        "mech_version": version_of(cell.mechanism),
                        "length": length,
                        "members": count,
                        "rates": num_rates,
                        "num_steps": num_steps,
                        "workers": num_workers,
                    }
                    if table.find(about) is not None:
                        continue
                    runs = _runs(cell, count, num_rates)
                    rates = _rates(runs, num_steps, num_repeats, device)
                    worker_rate = partial(_worker_rate, num_steps=num_steps, num_repeats=num_repeats)
                    rates["processes"] = sum(side_by_side(worker_rate, [cell] * num_workers)) if num_workers else None
                    yield table.add({**about, **rates, **_ratios(rates)})


def _runs(cell: Cell, count: int, num_rates: int) -> list[Run]:
    """Make ``count`` runs with ``num_rates`` learning rates for each seed.

    The rates of a seed are the suite's first learning rate, half of it, a quarter of it, and so on.
    """
    rate = cell.suite.training.learning_rates[0]
    return [Run(cell, index // num_rates, rate / 2 ** (index % num_rates)) for index in range(count)]


def _rates(runs: Sequence[Run], num_steps: int, num_repeats: int, device: torch.device) -> dict[str, Any]:
    """Measure the run-steps per second of each way to train in one process; None for a way that is not available.

    A run-step is one training step of one run.
    """
    program = partial(Program, num_steps=num_steps, device=device)
    looped = runs[:LOOPED]
    rates: dict[str, Any] = {
        "loop": _rate([program([run]) for run in looped], num_repeats),
        "published": _published_rate([program([run]) for run in looped], num_repeats),
        "batched": _rate([program(runs)], num_repeats),
        "captured": None,
        "not_captured": None,
    }
    if device.type == "cuda":
        captured = program(runs, is_captured=True)
        rate = _rate([captured], num_repeats)
        step = captured.trainer.captured
        if step is not None and step.is_replaying:
            rates["captured"] = rate
        else:
            rates["not_captured"] = "switched off" if step is None else step.failure
    return rates


def _ratios(rates: dict[str, Any]) -> dict[str, float | None]:
    pairs = (("loop", "published"), ("batched", "loop"), ("captured", "loop"), ("processes", "loop"))
    return {
        f"{way}/{other}": rates[way] / rates[other] if rates[way] and rates[other] else None for way, other in pairs
    }


def cells_of(suite: Suite, mechanisms: Selection, length: int, device_type: str) -> list[Cell]:
    """Make one cell (task × mechanism) per mechanism, with the task ``reverse`` at the given length."""
    return make_cells(suite, {TASK: {"length": str(length)}}, mechanisms, device_type=device_type, is_full=False)


def _rate(programs: Sequence["Program"], num_repeats: int) -> float:
    """Measure the run-steps (training steps times runs) per second of programs that take turns; return the median."""
    seconds = []
    for repeat in range(-programs[0].num_warm_ups, num_repeats):
        began = time.perf_counter()
        for program in programs:
            program.run()
        if repeat >= 0:
            seconds.append(time.perf_counter() - began)
    return sum(program.num_run_steps for program in programs) / median(seconds)


def _published_rate(programs: Sequence["Program"], num_repeats: int) -> float | None:
    """Measure the run-steps per second with attention as in its authors' code; None if a model has no such form."""
    is_published = [publish(program.trainer.model) for program in programs]
    return _rate(programs, num_repeats) if all(is_published) else None


class Program:
    """A trainer of one or more runs, with the batches on which its training steps are timed."""

    def __init__(self, runs: Sequence[Run], num_steps: int, device: torch.device, *, is_captured: bool = False) -> None:
        self.trainer = Trainer(runs, device, is_captured=is_captured)
        # A step is recorded only after a few steps without recording.
        self.num_warm_ups = 1 + (WARM_UP_STEPS // num_steps if is_captured else 0)
        self.batches = list(self.trainer.batches("train", num_steps, self.trainer.suite.training.batch_size))
        self.num_run_steps = len(runs) * num_steps

    def run(self) -> None:
        """Take all training steps and wait until the device has finished them."""
        for inputs, targets, columns in self.batches:
            self.trainer.step(inputs[0], targets[0], columns)
        if self.trainer.device.type == "cuda":
            torch.cuda.synchronize(self.trainer.device)


def _worker_rate(cell: Cell, *, num_steps: int, num_repeats: int) -> float:
    """Measure the run-steps per second of one worker process among several, with one run and one thread."""
    program = Program(_runs(cell, 1, 1), num_steps, torch.device("cpu"))
    wait_for_all()
    return _rate([program], num_repeats)


# Worker processes that run side by side and begin their timed parts at the same moment.


def side_by_side(function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
    """Call a function once per argument, each call in its own process with one thread; return the results in order.

    The function may call :func:`wait_for_all`, but must do so equally often in every process.

    Raises:
        Exception: If the function raises an exception in any process. Processes in :func:`wait_for_all` then stop
            waiting.
    """
    os.environ.update(WORKER_ENVIRONMENT)
    context = get_context("spawn")
    barrier = context.Barrier(len(arguments))
    with ProcessPoolExecutor(len(arguments), context, _begin, (barrier,)) as pool:
        return list(pool.map(partial(_or_release_the_others, function), arguments))


def wait_for_all() -> None:
    """Wait until all processes of :func:`side_by_side` have called this function; elsewhere, return at once."""
    if _barrier is not None:
        with suppress(BrokenBarrierError):  # a process that failed says why itself
            _barrier.wait()


def _begin(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - a barrier can only be handed to a process as it starts
    _barrier = barrier
    torch.set_num_threads(1)


def _or_release_the_others(function: Callable[[Argument], Result], argument: Argument) -> Result:
    try:
        return function(argument)
    except BaseException:
        if _barrier is not None:
            _barrier.abort()
        raise
