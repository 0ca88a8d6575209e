"""Facts about the machine and the software that are recorded in each row."""

import hashlib
import json
import os
import platform
import re
import resource
import socket
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import synthbench
from synthbench.errors import UsageError
from synthbench.runner.request import EXECUTORS

COMMIT = "SYNTHBENCH_COMMIT"
"""Environment variable that states the commit of the package, for machines without its repository."""

RELEVANT_PACKAGES = ("pandas", "pyarrow", "pebble", "scipy", "triton")
"""Packages whose versions are recorded, in addition to those that executors need."""


def resolve_device(name: str, *, must_exist: bool = True) -> torch.device:
    """Return the device that a name such as ``cpu``, ``cuda`` or ``cuda:1`` means; ``auto`` prefers a GPU to the CPU.

    Raises:
        UsageError: If the name is not allowed, or ``must_exist`` is True and this machine lacks the device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch("cpu|cuda(:[0-9]|:[1-9][0-9])?", name):  # PyTorch itself takes cuda:300 for cuda:44
        raise UsageError(f"device is {name!r}; allowed: auto, cpu, cuda, cuda:0, cuda:1, ...")
    device = torch.device(name)
    if must_exist and device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"device is {name!r}; this machine has {torch.cuda.device_count()} CUDA devices")
    return device


@lru_cache
def software() -> dict[str, Any]:
    """Return the software versions, the commit and a hash of the host name, keyed by the column name of a row."""
    packages = {}
    for package in (*RELEVANT_PACKAGES, *(kind.package for kind in EXECUTORS.values() if kind.package)):
        with suppress(PackageNotFoundError):
            packages[package] = version(package)
    return {
        "synthbench_version": synthbench.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "os": f"{platform.system()} {platform.release()}",
        "packages": json.dumps(packages, sort_keys=True),
        "host_hash": hashlib.sha256(f"synthbench:{socket.gethostname()}".encode()).hexdigest()[:12],
        **_checkout(),
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """Return the device and the settings that may affect its results, keyed by the column name of a row."""
    return {
        "device_type": device.type,
        "device_name": _gpu_name(device) if device.type == "cuda" else _cpu_name(),
        "num_threads": torch.get_num_threads(),
        "n_visible_devices": torch.cuda.device_count() if device.type == "cuda" else 0,
        "tf32": device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes: on a GPU, of tensors since the last reset; on a CPU, of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _gpu_name(device: torch.device) -> str:
    # This process may write rows for dead workers of a cluster, and have no GPU itself.
    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else "unknown"


def num_memory_kills() -> int:
    """Count the processes that the kernel of this machine has killed because memory ran out; 0 if unknown."""
    lines = _lines(Path("/proc/vmstat"))
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _lines(path: Path) -> list[str]:
    """Read the lines of a file that only Linux has; return an empty list if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


@lru_cache
def _cpu_name() -> str:
    facts: dict[str, str] = {}
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    if "model name" not in facts:
        return platform.processor() or platform.machine()
    # In a virtual machine, the name covers a whole product line ("AMD EPYC"), whose generations round differently.
    numbers = [facts[name] for name in ("cpu family", "model", "stepping") if name in facts]
    return f"{facts['model name']} ({'.'.join(numbers)})" if numbers else facts["model name"]


def stated_commit() -> str | None:
    """Return the commit in the environment variable ``SYNTHBENCH_COMMIT``; None if it is not set.

    Raises:
        UsageError: If the variable is set, but not to 40 hex digits.
    """
    stated = os.environ.get(COMMIT, "")
    if stated and not re.fullmatch("[0-9a-f]{40}", stated):
        raise UsageError(f"{COMMIT} is {stated!r}; allowed: 40 hex digits, as `git rev-parse HEAD` prints them")
    return stated or None


def commit_warning() -> str | None:
    """Return a warning if the commit of the repository differs from ``SYNTHBENCH_COMMIT``; None otherwise."""
    stated = stated_commit()
    checked_out = software()["git_sha"]
    if stated is None or checked_out is None or stated == checked_out:
        return None
    return f"{COMMIT} is {stated[:12]} and the repository is at {checked_out[:12]}: rows say {checked_out[:12]}"


def _checkout() -> dict[str, Any]:
    """Return the commit of the Git checkout that the package runs from, and whether its code has uncommitted changes.

    Without a repository, ``SYNTHBENCH_COMMIT`` may state the commit; the code is then assumed to be unchanged.
    """
    stated = stated_commit()
    folder = Path(synthbench.__file__).parent
    without = {"git_sha": stated, "git_dirty": None if stated is None else False}
    if not (folder.parent / ".git").exists():
        return without
    try:
        sha = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return without
    return {"git_sha": sha, "git_dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", os.fspath(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()  # noqa: S603


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
