"""How fast members train: in a plain loop, as one batched program, in worker processes, and as it was published.

All rates are member-steps a second: one gradient step of one member at the suite's batch size. Ratios are taken within
one run.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median
from threading import Barrier
from typing import Any

import torch

from synthbench.bench.instruments import one_thread
from synthbench.bench.published import publish
from synthbench.runner.config import Cell, Member
from synthbench.runner.environment import resolve_device
from synthbench.runner.executors.pool import WORKER_ENVIRONMENT
from synthbench.runner.plan import make_cells, select_mechanisms
from synthbench.runner.run import usable_cores
from synthbench.runner.stream import device_blocks
from synthbench.runner.train import Trainer
from synthbench.suites import Suite, load_suite

SUITE = "paper"
TASK = "reverse"
"""Scored at every position, so nothing of the model is left out; and defined at every length."""


def measure(
    expressions: Sequence[str],
    lengths: Sequence[int],
    *,
    num_members: int,
    num_steps: int,
    num_repeats: int,
    device: str,
) -> list[dict[str, Any]]:
    """Rates of every selected mechanism (those of the suite if none is) at every length, medians of some repeats.

    Worker processes are not timed on a GPU, whose memory they would share.

    Raises:
        UnknownName: If an expression names no mechanism.
        UsageError: If the device or a length is not allowed.
    """
    target = resolve_device(device)
    suite = load_suite(SUITE)
    mechanisms = select_mechanisms(suite, expressions or [",".join(suite.mechanisms)])
    num_workers = usable_cores() if target.type == "cpu" else 0
    facts = []
    with one_thread():
        for length in lengths:
            for name in mechanisms:
                cell = _cell(suite, name, length, target.type)
                members = [Member(seed, suite.training.learning_rates[0]) for seed in range(num_members)]
                program = partial(_Program, cell, num_steps=num_steps, device=target)
                loop = _rate([program([member]) for member in members], num_repeats)
                as_published = _published_rate([program([member]) for member in members], num_repeats)
                batched = _rate([program(members)], num_repeats)
                processes = _process_rate(name, length, num_steps, num_repeats, num_workers) if num_workers else None
                facts.append(
                    {
                        "mechanism": name,
                        "length": length,
                        "members": num_members,
                        "workers": num_workers,
                        "loop": loop,
                        "batched": batched,
                        "processes": processes,
                        "published": as_published,
                        "loop/published": loop / as_published if as_published else None,
                        "batched/loop": batched / loop,
                        "processes/loop": processes / loop if processes else None,
                    }
                )
    return facts


def _cell(suite: Suite, mechanism: str, length: int, device_type: str) -> Cell:
    (cell,) = make_cells(
        suite, {TASK: {"length": str(length)}}, {mechanism: {}}, device_type=device_type, is_full=False
    )
    return cell


def _rate(programs: Sequence["_Program"], num_repeats: int) -> float:
    """Member-steps a second when the programs take turns."""
    seconds = []
    for repeat in range(num_repeats + 1):
        began = time.perf_counter()
        for program in programs:
            program.run()
        if repeat:  # the first warms up
            seconds.append(time.perf_counter() - began)
    return sum(program.num_member_steps for program in programs) / median(seconds)


def _published_rate(programs: Sequence["_Program"], num_repeats: int) -> float | None:
    """The same with every mechanism in its published form; None if it has none."""
    is_published = [publish(program.trainer.model) for program in programs]
    return _rate(programs, num_repeats) if all(is_published) else None


class _Program:
    """A trainer with the batches that it is timed on."""

    def __init__(self, cell: Cell, members: Sequence[Member], num_steps: int, device: torch.device) -> None:
        self.trainer = Trainer(cell, members, device)
        batch_size = cell.suite.training.batch_size
        blocks = device_blocks(cell, members, "train", num_batches=num_steps, batch_size=batch_size, device=device)
        self.blocks = list(blocks)
        self.device = device
        self.num_member_steps = len(members) * num_steps

    def run(self) -> None:
        """Take all steps and wait until the device is done."""
        for inputs, targets, columns in self.blocks:
            for batch, labels in zip(inputs, targets, strict=True):
                self.trainer.step(batch, labels, columns)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


_start: Barrier | None = None


def _process_rate(mechanism: str, length: int, num_steps: int, num_repeats: int, num_workers: int) -> float:
    """Member-steps a second of all worker processes together, each running one member in one thread."""
    os.environ.update(WORKER_ENVIRONMENT)
    context = get_context("spawn")
    barrier = context.Barrier(num_workers)
    with ProcessPoolExecutor(num_workers, context, _initialise_worker, (barrier,)) as pool:
        arguments = [(mechanism, length, num_steps, num_repeats)] * num_workers
        rates = list(pool.map(_worker_rate, *zip(*arguments, strict=True)))
    return sum(rates)


def _initialise_worker(barrier: Barrier) -> None:
    global _start  # noqa: PLW0603 - a barrier can only be handed to a process as it starts
    _start = barrier
    torch.set_num_threads(1)


def _worker_rate(mechanism: str, length: int, num_steps: int, num_repeats: int) -> float:
    suite = load_suite(SUITE)
    cell = _cell(suite, mechanism, length, "cpu")
    members = [Member(0, suite.training.learning_rates[0])]
    if _start is not None:
        _start.wait()  # so that all are timed beside each other
    return _rate([_Program(cell, members, num_steps, torch.device("cpu"))], num_repeats)
