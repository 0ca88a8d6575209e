"""Drivers to be killed, or that something goes wrong in."""

import os
import re
import signal
import sys
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from pkgutil import walk_packages

import synthbench
from synthbench.errors import SynthbenchError
from synthbench.runner.request import Request
from synthbench.runner.run import run
from tests.runner.runs import one_by_one


def quick_processes() -> ForkServerContext:
    """Fork processes from one that has imported everything, so that they begin at once."""
    rooms = [module.name for module in walk_packages(synthbench.__path__, "synthbench.")]
    units = [name for name in rooms if re.match(r"synthbench\.(tasks|mechanisms|blocks|positions)\.(?!kernels)", name)]
    server = get_context("forkserver")
    server.set_forkserver_preload(["synthbench.runner.run", "synthbench.runner.executors.pool", *units])
    return server


def say(words: object) -> None:
    sys.stderr.write(f"{words}\n")


def drive(request: Request, fault: str, log: Path) -> None:
    """Run a request after a piece of Python; its words go to a log."""
    with log.open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    signal.alarm(240)
    exec(fault, globals())  # noqa: S102 - a test's own words
    try:
        run(request, on_outcome=lambda row: say(f"row {row.status}"))
    except SynthbenchError as problem:
        say(problem)
        os._exit(problem.exit_code)


def ended(*children: ForkServerProcess) -> int:
    """Wait for drivers; 0, or the exit code of one that failed, less than 0 if a signal ended it."""
    for child in children:
        child.join()
    return max((child.exitcode or 0 for child in children), key=abs)


class Driver:
    """Runs requests in children."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def begin(self, request: Request, fault: str = "", times: int = 1) -> list[ForkServerProcess]:
        """Run a request in a child, or several at once, after a piece of Python."""
        self._log.write_text("")
        processes = quick_processes()
        children = [processes.Process(target=drive, args=(request, fault, self._log)) for _ in range(times)]
        for child in children:
            child.start()
        return children

    def run(self, request: Request, fault: str = "", times: int = 1) -> int:
        """Wait for the end too."""
        return ended(*self.begin(request, fault, times))

    @property
    def said(self) -> str:
        """Output of the latest children."""
        return self._log.read_text(encoding="utf-8")


twelve_rows = partial(one_by_one, mechanisms=("linear", "softmax"), seeds=range(3), steps=40, executor="inline")
"""A request for 12 rows, each by itself; any field can be changed."""
