"""Prepare a process for foreign code: contain its side effects, and make results on a GPU reproducible.

Containment protects later runs and the machine from changes that a component makes to its process. It does not protect
from malicious code: a plugin is arbitrary code and runs with the user's rights.

This module imports nothing slow, since a worker process must call :func:`exit_with_parent` before it imports torch.
"""

import ast
import contextlib
import ctypes
import fcntl
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from multiprocessing import active_children, current_process, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from synthbench import plugins
from synthbench.errors import UsageError
from synthbench.plugins import text_of

if TYPE_CHECKING:
    import torch

PR_SET_CHILD_SUBREAPER = 36
"""Constant from ``linux/prctl.h``."""
STARTED_BY = "SYNTHBENCH_STARTED_BY"
"""Environment variable of workers and of all processes that they start: the path of the workers' temporary folder.

The path also identifies the process that started the workers."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end."""
LONGEST_END_S = 10.0
"""Limit on the wait for the end of all processes that a job started, in seconds."""

SILENT_EXIT = 120
"""Exit code that replaces 0 if a component ends its worker process with ``os._exit(0)``."""


def exit_with_parent() -> None:
    """Make the kernel end this worker process as soon as the process that started it has ended.

    This function does nothing in a process that :mod:`multiprocessing` did not start.
    """
    driver = parent_process()
    if driver is None:
        return
    # The sentinel is a pipe that only the driver holds open. When it closes, the kernel sends SIGIO, which ends us.
    fcntl.fcntl(driver.sentinel, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(driver.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(driver.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if not driver.is_alive():  # the pipe has closed already, so no signal will come
        os._exit(1)


def begin(location: str, *arguments: Any) -> None:
    """Call :func:`exit_with_parent`, then import and call a function; use this as the initialiser of a process pool.

    Args:
        location: Module and name of the function, ``package.module:function``.
        arguments: Arguments of the function. Their types must not be defined in synthbench, because the process would
            then import their modules, which may be slow, before it calls :func:`exit_with_parent`.
    """
    exit_with_parent()
    module, _, name = location.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


_turns: dict[int, AbstractContextManager[bool]] = {}
"""The lock of :func:`own_turn`, by process: in a forked process, the thread that held the lock does not exist."""


def own_turn() -> AbstractContextManager[bool]:
    """Return a lock to hold while a thread trains in this process, because all threads share stdout and settings."""
    return _turns.setdefault(os.getpid(), threading.RLock())


@contextlib.contextmanager
def settings_restored() -> Iterator[None]:
    """Restore process-wide settings after the block, such as random generators, default dtype and working folder."""
    import numpy as np
    import torch

    folder = Path.cwd()
    threads, dtype, device = torch.get_num_threads(), torch.get_default_dtype(), torch.get_default_device()
    deterministic, has_gradients = torch.get_deterministic_debug_mode(), torch.is_grad_enabled()
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    is_main = threading.current_thread() is threading.main_thread()  # another thread may set no handler
    handlers = {number: signal.getsignal(number) for number in ENDING if is_main}
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002 - it is put back, not used
        torch.set_grad_enabled(has_gradients)
        if torch.get_deterministic_debug_mode() != deterministic:  # to set it imports the compiler
            torch.set_deterministic_debug_mode(deterministic)
        torch.set_default_dtype(dtype)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
        os.chdir(folder)


# Without PyTorch, only the folder: to import it for a plugin that does not would take seconds.
plugins.while_imported = lambda: settings_restored() if "torch" in sys.modules else contextlib.chdir(".")


@contextlib.contextmanager
def usual_settings(device_type: str) -> Iterator[None]:
    """Run the block with PyTorch's usual default dtype, device and gradients, and without autocast.

    A notebook may have changed them, and results would then differ from those of a worker process. Random generators
    are left alone, so that a plan disturbs no training in another thread.

    Args:
        device_type: Type of the device that computes, such as ``cuda``.
    """
    import torch

    dtype, is_usual = torch.get_default_dtype(), torch.get_default_device().type == "cpu"
    with (
        torch.inference_mode(mode=False),  # this allows gradients too
        torch.autocast("cpu", enabled=False),
        torch.autocast(device_type, enabled=False),
        contextlib.nullcontext() if is_usual else torch.device("cpu"),
    ):
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


def become_worker() -> None:
    """Prepare this worker process for training: use one thread, ignore Ctrl-C, and end as soon as the driver ends.

    The driver is the process that started this worker. Only the driver reacts to Ctrl-C.
    """
    import torch

    torch.set_num_threads(1)
    _workers.add(os.getpid())
    if sys.platform == "linux":  # orphans of a child of this process become children of this process
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    _note_silent_exits()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent()


# Processes that foreign code starts end with its job. Linux lists all processes in /proc; on other systems nothing is
# done.


def end_children() -> None:
    """End all processes that this worker's job started, directly or indirectly, and wait until they are gone.

    This function does nothing outside a worker process.
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
    """Run the ``with`` block, then end processes and delete temporary files that killed workers left behind.

    Yields the path of a folder for the workers' temporary files. An environment variable passes this path to the
    workers and to all processes that they start. What killed drivers (processes that started workers) left behind is
    ended and deleted first.
    """
    with contextlib.suppress(OSError):  # of a system without /proc
        _end_abandoned()
    with temporary_folder("synthbench-") as folder, _marked_in_use(Path(folder)):
        try:
            with variable_set(STARTED_BY, folder):
                yield folder
        finally:
            end_orphans(folder)


@contextlib.contextmanager
def _marked_in_use(folder: Path) -> Iterator[None]:
    """Hold a lock on a file in the folder; the kernel releases it if this process is killed."""
    with (folder / "unlocked").open("wb") as file:
        with contextlib.suppress(OSError):  # of a disk without locks, or a system without the id: the folder is left
            fcntl.flock(file, fcntl.LOCK_EX)
            Path(file.name).rename(folder / _name_of_lock())  # only now do others see it
        yield


def _end_abandoned() -> None:
    """End the orphans of this user's killed drivers on this machine, and delete the drivers' folders."""
    for lock in Path(tempfile.gettempdir()).glob(f"synthbench-*/{_name_of_lock()}"):
        with contextlib.suppress(OSError):
            if lock.parent.lstat().st_uid == os.getuid():
                with lock.open("r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while the driver lives
                    end_orphans(str(lock.parent))
                    shutil.rmtree(lock.parent, ignore_errors=True)


def _name_of_lock() -> str:
    # The running kernel is named, since the kernel of another machine that shares the disk may not see the lock.
    return f"driver-{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()}.lock"


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[str]:
    """Make a temporary folder for the block; it is deleted afterwards, or by :func:`end_at_once`."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as folder:
        _folders.append(folder)
        try:
            yield folder
        finally:
            _folders.remove(folder)


_folders: list[str] = []
"""Temporary folders that :func:`temporary_folder` has made and that are in use."""


def end_at_once(exit_code: int) -> NoReturn:
    """End this process and its workers without waiting for them, but delete what they would leave behind."""
    for worker in active_children():
        worker.kill()  # otherwise it would finish its job first
        worker.join()
    for folder in _folders:
        end_orphans(folder)
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(exit_code)


@contextlib.contextmanager
def variable_set(name: str, value: str) -> Iterator[None]:
    """Set an environment variable inside the block, and restore its former value afterwards."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def end_orphans(folder: str) -> None:
    """End all processes whose environment names ``folder``, the folder that :func:`orphans_ended` yields.

    This process and its descendants are not ended.
    """
    mark = f"{STARTED_BY}={folder}".encode()
    parents = _parents()
    left = [pid for pid in parents if pid != os.getpid() and os.getpid() not in _ancestors(pid, parents)]
    _kill([pid for pid in left if mark in _environment(pid).split(b"\0")])


_workers: set[int] = set()
"""Id of this process if it is a worker, otherwise empty. A fork of a worker inherits this set but has another id, so it
is no worker."""


def _parents() -> dict[int, int]:
    """Return the id of the parent of every running process, by process id."""
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
    """Raise an error if worker processes cannot be started, or would run the main script again without a guard.

    Raises:
        UsageError: If this process is daemonic, or if the script has neither ``if __name__ == "__main__":`` nor a
            similar condition.
    """
    if current_process().daemon:
        raise UsageError(
            "worker processes are needed, and a daemonic process, such as one of multiprocessing.Pool, cannot start "
            "any; call synthbench from the main process, or from one of concurrent.futures.ProcessPoolExecutor"
        )
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
    """Describe the end of a worker process by its exit code."""
    return f"exit code {0 if code == SILENT_EXIT else code}"


def _note_silent_exits() -> None:
    """Make ``os._exit(0)`` exit with ``SILENT_EXIT``; the parent process would take 0 for a regular end, and wait.

    In forks of this process, ``os._exit`` works as usual.
    """
    worker, leave = os.getpid(), os._exit

    def leave_noticed(status: int) -> NoReturn:
        leave(SILENT_EXIT if status == 0 and os.getpid() == worker else status)

    os._exit = leave_noticed


@contextlib.contextmanager
def contained(log: Path) -> Iterator[None]:
    """Run the ``with`` block (a worker's job) in a temporary working folder, and write its output to a log file.

    Args:
        log: File for the output of Python and of libraries. An existing file is replaced. If there is no output, the
            file is removed.
    """
    from synthbench.results.store import mark_in_use

    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        settings_restored(),
        tempfile.TemporaryDirectory(prefix="synthbench-", dir=os.environ.get(STARTED_BY)) as scratch,
        log.open("wb") as output,
        _sent_to(output.fileno()),
        contextlib.chdir(scratch),  # on some systems, the current folder of a process cannot be removed
    ):
        mark_in_use(output)
        try:
            yield
        finally:
            end_children()
    # The log is gone if its folder was cleared, or if the job ran twice because its first worker was taken for dead.
    with contextlib.suppress(FileNotFoundError):
        if not log.stat().st_size:
            log.unlink()


@contextlib.contextmanager
def _sent_to(target: int) -> Iterator[None]:
    """Redirect the file descriptors of stdout and stderr to the descriptor ``target``."""
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


# Reproducible results on a GPU need all of these settings, one of them before CUDA starts. A CPU with one thread needs
# none. Results may still differ between devices, and between versions of PyTorch.

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""Values of ``WORKSPACE`` with which cuBLAS always adds in the same order; the first is set by default."""


def reserve_workspace(device: "torch.device") -> None:
    """Set ``CUBLAS_WORKSPACE_CONFIG`` so that sums on a GPU are reproducible; do nothing if ``device`` is a CPU.

    If this environment variable already has a value that makes sums reproducible, it is left unchanged.

    Raises:
        UsageError: If CUDA has already started without such a value, since it is then too late.
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
    """Restrict PyTorch to deterministic algorithms in the ``with`` block; an operation without one raises an error.

    Raises:
        UsageError: If CUDA has already started without a value of ``CUBLAS_WORKSPACE_CONFIG`` that makes sums
            reproducible.
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
    """Tell whether PyTorch raised this error because an operation has no deterministic implementation."""
    return isinstance(problem, RuntimeError) and "does not have a deterministic implementation" in text_of(problem)
