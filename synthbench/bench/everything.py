"""Everything worth measuring on one device, cut into steps that resume.

A step is a command of its own process. It is there when its output is, ``<step>.txt`` in the device's folder; most
write rows beside it as they go, and begin again behind the last row. So a call may end at any time, and the same call
does the rest. A step that was cut leaves what it printed in ``<step>.part.txt``, which its next attempt goes on with.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import torch

from synthbench.bench.steps import Step
from synthbench.errors import StoreError, UnknownName
from synthbench.runner.environment import hardware

LEAST_S = 20.0
"""A step is begun if so much time is left."""
GRACE_S = 15.0
"""Before the time is over a step is asked to end, and has so long to write what it has."""

State = Literal["there", "done", "cut", "failed", "missing"]


@dataclass(frozen=True)
class Outcome:
    """The result of a step in one call."""

    step: Step
    state: State
    seconds: float = 0.0


def folder_of(out: Path, device: torch.device, *, is_quick: bool) -> Path:
    """The folder for what is measured on a device, named after it: ``nvidia-h100-80gb-hbm3``."""
    name = re.sub(r"[^a-z0-9]+", "-", str(hardware(device)["device_name"]).lower()).strip("-")
    return out / (f"{name}-quick" if is_quick else name)


def select(steps: Sequence[Step], patterns: Sequence[str]) -> list[Step]:
    """The steps whose names match any of some globs, in their order; all if there is no glob.

    Raises:
        UnknownName: If a glob matches none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(step.name, pattern) for step in steps):
            raise UnknownName("step", pattern, [step.name for step in steps])
    return [step for step in steps if not patterns or any(fnmatchcase(step.name, pattern) for pattern in patterns)]


def is_there(step: Step, folder: Path) -> bool:
    """Whether a step has ended well."""
    return _output(step, folder).exists()


def perform(
    steps: Sequence[Step],
    folder: Path,
    *,
    budget_s: float,
    on_begin: Callable[[Step], None] = lambda _step: None,
) -> Iterator[Outcome]:
    """Run the steps that are missing while there is time, those that failed before last; the result of each.

    Raises:
        StoreError: If the folder cannot be written.
    """
    deadline = time.monotonic() + budget_s
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StoreError(f"{str(folder)!r} cannot be written: {problem}") from None
    for step in sorted(steps, key=lambda step: _failure(step, folder).exists()):
        began = time.monotonic()
        if is_there(step, folder):
            yield Outcome(step, "there")
        elif deadline - began < LEAST_S:
            yield Outcome(step, "missing")
        else:
            on_begin(step)
            state = _run(step, folder, deadline)
            yield Outcome(step, state, time.monotonic() - began)


def _run(step: Step, folder: Path, deadline: float) -> State:
    """Run a step until it ends or the time is over."""
    draft = folder / f"{step.name}.part.txt"
    with draft.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            [sys.executable, *step.arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **step.environment},
            start_new_session=True,  # so that what it starts ends with it
        )
        is_cut = False
        try:
            process.wait(max(0.0, deadline - time.monotonic() - GRACE_S))
        except subprocess.TimeoutExpired:
            is_cut = True
        finally:
            _end(process)
        if is_cut and process.returncode:
            output.write("\ncut here: the time of the call was over; the same call goes on\n")
            return "cut"
    if process.returncode == 0:
        draft.replace(_output(step, folder))
        _failure(step, folder).unlink(missing_ok=True)
        return "done"
    draft.replace(_failure(step, folder))
    return "failed"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process that still runs to end, as Ctrl-C does; then end it and what it started."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _output(step: Step, folder: Path) -> Path:
    return folder / f"{step.name}.txt"


def _failure(step: Step, folder: Path) -> Path:
    return folder / f"{step.name}.failed.txt"
