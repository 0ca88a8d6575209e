"""What a process needs before strangers' code computes in it: containment, and the same numbers every time on a GPU.

Containment keeps what a mechanism or a task does to its process away from the jobs after it, and from the machine.

This is no protection from code that means harm: a plugin is arbitrary code and runs with the user's rights.
"""

import ast
import contextlib
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from synthbench.errors import UsageError
from synthbench.lifeline import end_with_driver
from synthbench.results.store import mark_in_use

SILENT_EXIT = 120
"""Exit code of a worker process that a mechanism or task ended with code 0."""


@contextlib.contextmanager
def settings_restored() -> Iterator[None]:
    """Put the process-wide settings back that a job may have changed: generators, threads, default type, folder."""
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
    """For a process that runs foreign code for a driver: one thread, no ear for Ctrl-C, and no life after the driver's.

    Ctrl-C goes to the whole process group; the driver decides what it means.
    """
    torch.set_num_threads(1)
    _note_silent_exits()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_driver()


def require_guarded_main() -> None:
    """To be called before a process is started, which imports the script that the driver runs.

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
    """How a worker process ended, in words."""
    return f"exit code {0 if code == SILENT_EXIT else code}"


def _note_silent_exits() -> None:
    """Let ``os._exit(0)`` be seen: the driver takes code 0 for the regular end of a worker, and waits for its result.

    Processes that this one forks are left alone.
    """
    worker, leave = os.getpid(), os._exit

    def leave_noticed(status: int) -> NoReturn:
        leave(SILENT_EXIT if status == 0 and os.getpid() == worker else status)

    os._exit = leave_noticed


@contextlib.contextmanager
def contained(log: Path) -> Iterator[None]:
    """For a worker process: a folder of its own for the job, and what it prints in a file, if it prints anything.

    Args:
        log: Where the output goes, of Python and of libraries alike; replaced if there is one from an earlier try.
    """
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
            os.chdir(log.parent)  # a folder that somebody stands in cannot be removed everywhere
    # It is gone if somebody cleared the folder, or if the job ran twice because its first worker was taken for dead.
    with contextlib.suppress(FileNotFoundError):
        if not log.stat().st_size:
            log.unlink()


def log_of(results: Path, run_id: str, driver: str) -> Path:
    """Where the output of the job lies whose first missing row has this id, as one driver runs it.

    Another driver on the same store may run the same job at the same time.
    """
    return results / "logs" / f"{run_id}.{driver}.log"


@contextlib.contextmanager
def _sent_to(target: int) -> Iterator[None]:
    """Send what is written to the descriptors of stdout and stderr elsewhere."""
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
"""Its values with which cuBLAS adds in the same order every time; the first is set where there is none."""


def reserve_workspace(device: torch.device) -> None:
    """Fix the workspaces of cuBLAS in this process and those that it starts; nothing on a CPU.

    Raises:
        UsageError: If CUDA has started without.
    """
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
def deterministic_algorithms(device: torch.device) -> Iterator[None]:
    """Let PyTorch use nothing in here that may give other bits the next time; it raises where there is no such thing.

    Raises:
        UsageError: If it is too late for that.
    """
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
    """Whether PyTorch raised this because it knows no deterministic way to compute something."""
    return isinstance(problem, RuntimeError) and "does not have a deterministic implementation" in str(problem)
