"""Worker processes that run side by side and begin their timed parts at the same moment."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from threading import Barrier, BrokenBarrierError
from typing import TypeVar

import torch

from synthbench.runner.executors.base import WORKER_ENVIRONMENT

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_barrier: Barrier | None = None


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
        waiting = [pool.submit(partial(_or_release_the_others, function), argument) for argument in arguments]
    problems = [problem for problem in (future.exception() for future in waiting) if problem is not None]
    for problem in sorted(problems, key=lambda problem: isinstance(problem, BrokenBarrierError)):
        raise problem
    return [future.result() for future in waiting]


def wait_for_all() -> None:
    """Wait until all processes of :func:`side_by_side` have called this function; elsewhere, return at once."""
    if _barrier is not None:
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
