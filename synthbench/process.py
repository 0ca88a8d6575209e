"""Prepare a process for foreign code: containment, and the same numbers every time on a GPU.

Containment keeps what a component does to its process away from later jobs and from the machine.

It is no protection from malicious code: a plugin is arbitrary code and runs with the user's rights.

This module imports nothing heavy: a worker ties itself to its driver first, and importing torch takes seconds.
"""

import ast
import contextlib
import ctypes
import fcntl
import importlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

from synthbench.errors import UsageError

if TYPE_CHECKING:
    import torch

PR_SET_CHILD_SUBREAPER = 36
"""Constant from ``linux/prctl.h``."""
STARTED_BY = "SYNTHBENCH_STARTED_BY"
"""Variable that names the driver whose worker a process descends from."""
LONGEST_END_S = 10.0
"""Longest wait until a job's processes are gone."""

SILENT_EXIT = 120
"""Exit code of a worker process that a component ended with code 0."""


def exit_with_parent() -> None:
    """Let the kernel end this process when its driver is gone, whatever either was doing.

    No thread could do that while code in C holds the interpreter's lock. Does nothing in a process without a driver.
    """
    driver = parent_process()
    if driver is None:
        return
    # An end of a pipe that only the driver holds open. When it closes the kernel sends SIGIO, which ends a process.
    fcntl.fcntl(driver.sentinel, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(driver.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(driver.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if not driver.is_alive():  # it has closed already, of which nothing is sent
        os._exit(1)


def begin(location: str, *arguments: Any) -> None:
    """Tie this process to its driver, then import a function and call it: the initialiser of a process pool.

    Args:
        location: Module and name, ``package.module:function``.
        arguments: Its arguments, of types that need no import of ours.
    """
    exit_with_parent()
    module, _, name = location.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


@contextlib.contextmanager
def settings_restored() -> Iterator[None]:
    """Restore process-wide settings that a job may change: generators, threads, default dtype, folder."""
    import numpy as np
    import torch

    folder = Path.cwd()
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    is_deterministic, has_gradients = torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002 - it is put back, not used
        torch.set_grad_enabled(has_gradients)
        torch.use_deterministic_algorithms(is_deterministic)
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        os.chdir(folder)


def become_worker() -> None:
    """Prepare this process for foreign code: one thread, no Ctrl-C, and an end with its driver.

    Ctrl-C goes to the whole process group; the driver decides what it means.
    """
    import torch

    torch.set_num_threads(1)
    _workers.add(os.getpid())
    if sys.platform == "linux":  # what a child of this process leaves behind becomes a child of this process
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    _note_silent_exits()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent()


# What somebody else's code starts ends with its job. Linux says which processes there are in /proc; elsewhere nothing
# is done.


def end_children() -> None:
    """End every process that a worker's job started, in any way, and wait until all are gone.

    A worker becomes the parent of what its children leave behind. Does nothing in any other process.
    """
    if os.getpid() not in _workers:
        return
    until = time.monotonic() + LONGEST_END_S
    while time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        parents = _parents()
        started = [pid for pid in parents if os.getpid() in _ancestors(pid, parents)]
        if not started:
            return
        _kill(started)
        time.sleep(0.01)


@contextlib.contextmanager
def orphans_ended() -> Iterator[str]:
    """End, after this block, every process that code in one of the driver's workers has started.

    Yields the token in the environment of the workers started here, by which :func:`end_orphans` finds what a killed
    worker left behind.
    """
    token = uuid4().hex
    try:
        with variable_set(STARTED_BY, token):
            yield token
    finally:
        end_orphans(token)


@contextlib.contextmanager
def variable_set(name: str, value: str) -> Iterator[None]:
    """Set an environment variable inside the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def end_orphans(token: str) -> None:
    """End the processes that killed workers left behind; those with a parent below this process stay."""
    mark = f"{STARTED_BY}={token}".encode()
    parents = _parents()
    left = [pid for pid in parents if pid != os.getpid() and os.getpid() not in _ancestors(pid, parents)]
    _kill([pid for pid in left if mark in _environment(pid).split(b"\0")])


_workers: set[int] = set()
"""This process, if it is a worker; a fork of one is none."""


def _parents() -> dict[int, int]:
    """Return the parent of every running process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, *_ = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if state != "Z":
                parents[int(path.parent.name)] = int(parent)
    return parents


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def _environment(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def require_guarded_main() -> None:
    """Refuse an unguarded main script, which every process that is started would import.

    Raises:
        UsageError: If the script has no ``if __name__ == "__main__":`` or the like, so that each would run it again.
    """
    main = sys.modules["__main__"]
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if path is None or (spec is not None and spec.name.endswith("__main__")):  # neither is imported by processes
        return
    try:
        script = ast.parse(Path(path).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return
    conditions = (ast.walk(statement.test) for statement in script.body if isinstance(statement, ast.If))
    words = {getattr(node, "id", getattr(node, "attr", None)) for condition in conditions for node in condition}
    if words.isdisjoint({"__name__", "parent_process", "current_process"}):
        raise UsageError(
            f"worker processes import {str(path)!r}, which has no guard and would run again in each; put what it does "
            'under `if __name__ == "__main__":`'
        )


def exit_of(code: int | None) -> str:
    """Describe how a worker process ended."""
    return f"exit code {0 if code == SILENT_EXIT else code}"


def _note_silent_exits() -> None:
    """Make ``os._exit(0)`` visible: the driver takes code 0 for a regular end and waits for a result.

    Processes that this one forks are left alone.
    """
    worker, leave = os.getpid(), os._exit

    def leave_noticed(status: int) -> NoReturn:
        leave(SILENT_EXIT if status == 0 and os.getpid() == worker else status)

    os._exit = leave_noticed


@contextlib.contextmanager
def contained(log: Path) -> Iterator[None]:
    """Give a worker's job a folder of its own, and send what it prints, if anything, to a file.

    Args:
        log: File for the output of Python and of libraries; replaces that of an earlier try.
    """
    from synthbench.results.store import mark_in_use

    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        settings_restored(),
        tempfile.TemporaryDirectory(prefix="synthbench-") as scratch,
        log.open("wb") as output,
        _sent_to(output.fileno()),
    ):
        mark_in_use(output)
        os.chdir(scratch)
        try:
            yield
        finally:
            end_children()
            os.chdir(log.parent)  # a folder that somebody stands in cannot be removed everywhere
    # It is gone if somebody cleared the folder, or if the job ran twice because its first worker was taken for dead.
    with contextlib.suppress(FileNotFoundError):
        if not log.stat().st_size:
            log.unlink()


def log_of(results: Path, run_id: str, driver: str) -> Path:
    """Return where one driver puts the output of the job whose first missing row has this id.

    Another driver on the same store may run the same job at the same time.
    """
    return results / "logs" / f"{run_id}.{driver}.log"


@contextlib.contextmanager
def _sent_to(target: int) -> Iterator[None]:
    """Redirect what is written to the descriptors of stdout and stderr."""
    before = [os.dup(number) for number in (1, 2)]
    try:
        for number in (1, 2):
            os.dup2(target, number)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, copy in zip((1, 2), before, strict=True):
            os.dup2(copy, number)
            os.close(copy)


# The same numbers every time on a GPU: settings that must all be made, one of them before CUDA starts. A CPU with one
# thread needs none of them. Nothing is promised across devices, or across versions of PyTorch.

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""Values of ``WORKSPACE`` with which cuBLAS always adds in the same order; the first is set by default."""


def reserve_workspace(device: "torch.device") -> None:
    """Fix the workspaces of cuBLAS in this process and those that it starts; does nothing on a CPU.

    Raises:
        UsageError: If CUDA has started without.
    """
    import torch

    setting = os.environ.get(WORKSPACE)
    if device.type != "cuda" or setting in WORKSPACES:
        return
    if torch.cuda.is_initialized():
        raise UsageError(
            f"deterministic, but CUDA has started with {WORKSPACE} {'unset' if setting is None else repr(setting)}; "
            f"allowed: {' or '.join(WORKSPACES)}, set before the first tensor is on the device"
        )
    os.environ[WORKSPACE] = WORKSPACES[0]


@contextlib.contextmanager
def deterministic_algorithms(device: "torch.device") -> Iterator[None]:
    """Restrict PyTorch inside the block to algorithms that repeat their bits; it raises where there is none.

    Raises:
        UsageError: If it is too late for that.
    """
    import torch

    reserve_workspace(device)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32
    try:
        torch.use_deterministic_algorithms(True)  # noqa: FBT003 - torch's own signature
        cudnn.benchmark, cudnn.deterministic = False, True
        cudnn.allow_tf32 = matmul.allow_tf32 = False
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = before
        torch.use_deterministic_algorithms(was_deterministic)


def is_refused(problem: BaseException) -> bool:
    """Tell whether PyTorch raised this because it knows no deterministic way to compute something."""
    return isinstance(problem, RuntimeError) and "does not have a deterministic implementation" in str(problem)
