"""Everything worth measuring on one device, cut into steps that resume.

A step is a command of its own process. It is there when its output is, ``<step>.txt`` in the device's folder; most
write rows beside it as they go, and begin again behind the last row. So a call may end at any time, and the same call
does the rest.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import torch

from synthbench.bench.forms import FORMS
from synthbench.errors import StoreError, UnknownName
from synthbench.mechanisms import MECHANISMS
from synthbench.runner.environment import hardware

LEAST_S = 20.0
"""A step is begun if so much time is left."""
GRACE_S = 15.0
"""Before the time is over a step is asked to end, and has so long to write what it has."""

TESTS = Path(__file__).parents[2] / "tests"
"""Where the package runs from a checkout."""

State = Literal["there", "done", "failed", "missing"]


@dataclass(frozen=True)
class Step:
    """A command that measures something."""

    name: str
    arguments: tuple[str, ...]
    """Behind the Python interpreter."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What differs from this process's."""


@dataclass(frozen=True)
class Outcome:
    """What became of a step in one call."""

    step: Step
    state: State
    seconds: float = 0.0


def folder_of(out: Path, device: torch.device, *, is_quick: bool) -> Path:
    """The folder for what is measured on a device, named after it: ``nvidia-h100-80gb-hbm3``."""
    name = re.sub(r"[^a-z0-9]+", "-", str(hardware(device)["device_name"]).lower()).strip("-")
    return out / (f"{name}-quick" if is_quick else name)


def steps_for(device: torch.device, folder: Path, *, is_quick: bool = False) -> list[Step]:
    """The steps for a device, the most telling first; quick ones only prove that every step runs."""
    if is_quick:
        return _quick(device, folder)
    return _on_cuda(device, folder) if device.type == "cuda" else _on_cpu(device, folder)


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
    """Run the steps that are missing while there is time, those that failed before last; what became of each.

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
    with draft.open("w", encoding="utf-8") as output:
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
    if process.returncode == 0:
        draft.replace(_output(step, folder))
        _failure(step, folder).unlink(missing_ok=True)
        return "done"
    if is_cut:
        draft.unlink()
        return "missing"
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


KERNELS = "slay,linear,performer,cosformer,softmax,yat-spherical"
"""What there are kernels and goals for."""
FLEX = "softmax,yat,yat-sum,yat-spherical,rewa-euclidean"
"""Some of what FlexAttention computes: the published kernels, and the softmax to compare with."""
SUITE = ("--steps", "20", "--lengths", "32,64,256")


def _linear_time() -> str:
    return ",".join(name for name in MECHANISMS.usable() if not _is_quadratic(name))


def _quadratic() -> str:
    return ",".join(name for name in MECHANISMS.usable() if _is_quadratic(name))


def _is_quadratic(name: str) -> bool:
    return MECHANISMS[name].complexity.startswith("T^2")


def _powers(first: int, last: int) -> str:
    """Powers of two, a comma list."""
    return ",".join(str(2**power) for power in range(first, last + 1))


def _on_cpu(device: torch.device, folder: Path) -> list[Step]:
    to_16k = ("--lengths", _powers(7, 14), "--max-gigabytes", "8")
    chosen = ("--forms", "layer,attend,streamed")
    return [
        _synthbench("doctor", "doctor"),
        _scaling("scaling", device, folder, _linear_time(), *to_16k, *chosen, "--max-seconds", "240"),
        _scaling("scaling-forms", device, folder, KERNELS, *to_16k, "--max-seconds", "20"),
        _fidelity("fidelity", device, folder, "--budget", "small,medium,large"),
        _fidelity("fidelity-sweep", device, folder, "--sweep"),
        _context("context", device, folder, "1", "--longest", "131072", "--max-seconds", "10"),
        _suite("suite", device, folder, "--members", "4", *SUITE),
        _scaling("scaling-quadratic", device, folder, _quadratic(), *to_16k, *chosen, "--max-seconds", "10"),
    ]


def _on_cuda(device: torch.device, folder: Path) -> list[Step]:
    until_full = ("--max-gigabytes", "1000000")
    # FlexAttention is compiled for every length, and may fail there: it has a step of its own.
    all_but_flex = ("--forms", ",".join(form for form in FORMS if form != "flex"))
    to_128k = ("--lengths", _powers(7, 17), "--max-seconds", "4", *until_full, *all_but_flex)
    half = ("--dtype", "bfloat16")
    seeds = ("--seeds", "42-44")
    long = ("--lengths", _powers(18, 24), "--forms", "layer,attend,streamed,kernel", "--max-seconds", "10")
    wide = ("--lengths", "1024,4096,16384", "--batch-size", "32", "--max-seconds", "4", *all_but_flex)
    flex = ("--lengths", "4096,16384,65536", "--forms", "attend,flex", "--max-seconds", "4")
    return [
        _synthbench("doctor", "doctor"),
        *_tests(),
        _scaling("scaling-bfloat16", device, folder, KERNELS, *to_128k, *half),
        _scaling("scaling-float32", device, folder, KERNELS, *to_128k),
        _suite("suite", device, folder, "--members", "1,2,4,8,16,32,64", *SUITE),
        _suite("suite-rates", device, folder, "--members", "12,48", "--rates", "3", *SUITE),
        _packing(device),
        _paper("paper", device, folder, *seeds),
        _fidelity("fidelity", device, folder, "--budget", "small,medium,large"),
        _fidelity("fidelity-sweep", device, folder, "--sweep"),
        _scaling("scaling-until-full", device, folder, KERNELS, *long, *until_full, *half),
        _scaling("scaling-batch", device, folder, KERNELS, *wide, *until_full, *half),
        _context("context", device, folder, _gigabytes_of(device), "--longest", "16777216", *half),
        _scaling("scaling-flex", device, folder, FLEX, *flex, *until_full),
        _paper("paper-cell-by-cell", device, folder, *seeds, "--members", "3"),
        _scaling("scaling-others", device, folder, "all", *to_128k, *half),
    ]


def _gigabytes_of(device: torch.device) -> str:
    """Nine tenths of its memory; a blank to fill in where the plan is for a GPU that is elsewhere."""
    if not torch.cuda.is_available():
        return "GIGABYTES"
    return f"{0.9 * torch.cuda.get_device_properties(device).total_memory / 2**30:.0f}"


def _quick(device: torch.device, folder: Path) -> list[Step]:
    once = ("--repeats", "1")
    members = "1,2" if device.type == "cuda" else "2"
    suite = ("--members", members, "--mech", "linear", "--lengths", "8", "--steps", "5")
    short = ("--task", "copy:length=8", "--mech", "linear", "--seeds", "42", "--steps", "8", "--limit", "8")
    return [
        _synthbench("doctor", "doctor"),
        *(_tests() if device.type == "cuda" else []),
        _scaling("scaling", device, folder, "slay,linear", "--lengths", "16,32", *once),
        _suite("suite", device, folder, *suite, *once),
        *([_packing(device, "--at-once", "2", "--steps", "5", *once)] if device.type == "cuda" else []),
        _paper("paper", device, folder, *short),
        _fidelity("fidelity", device, folder, "--budget", "small", "--seeds", "0", *once),
        _context("context", device, folder, "0.01", "--longest", "256", "--mech", "linear"),
    ]


def _synthbench(name: str, *arguments: str) -> Step:
    return Step(name, ("-m", "synthbench", *arguments))


def _bench(name: str, bench: str, device: torch.device, folder: Path, *arguments: str) -> Step:
    rows = str(folder / f"{bench}.parquet")
    return _synthbench(name, "bench", bench, "--device", str(device), "--out", rows, *arguments)


def _scaling(name: str, device: torch.device, folder: Path, mechanisms: str, *arguments: str) -> Step:
    return _bench(name, "scaling", device, folder, "--mech", mechanisms, *arguments)


def _paper(name: str, device: torch.device, folder: Path, *arguments: str) -> Step:
    """Suite ``paper`` into a store of its own; its last line says how long it took."""
    store = str(folder / name)
    return _synthbench(name, "run", "--suite", "paper", "--device", str(device), "--results", store, *arguments)


def _packing(device: torch.device, *arguments: str) -> Step:
    return _synthbench("packing", "bench", "packing", "--device", str(device), *arguments)


def _fidelity(name: str, device: torch.device, folder: Path, *arguments: str) -> Step:
    return _bench(name, "fidelity", device, folder, *arguments)


def _context(name: str, device: torch.device, folder: Path, gigabytes: str, *arguments: str) -> Step:
    return _bench(name, "context", device, folder, "--gigabytes", gigabytes, *arguments)


def _suite(name: str, device: torch.device, folder: Path, *arguments: str) -> Step:
    return _bench(name, "suite", device, folder, *arguments)


def _tests() -> list[Step]:
    """The tests that need a GPU, from a checkout; kernels compiled, not interpreted."""
    if not TESTS.is_dir():
        return []
    runner = (str(TESTS / "runner" / name) for name in ("test_capture.py", "test_same_rows.py"))
    mechanisms = (str(TESTS / "mechanisms" / name) for name in ("kernels", "test_flex.py"))
    files = [*mechanisms, str(TESTS / "bench" / "test_flash_linear_attention.py"), *runner]
    # Without the shape checker, which may not be installed there, and whatever other packages warn of.
    plainly = ("-o", "addopts=--import-mode=importlib", "-W", "default", "-p", "no:cacheprovider")
    return [Step("tests", ("-m", "pytest", "-m", "gpu", "-q", *plainly, *files), {"TRITON_INTERPRET": "0"})]
