"""Lists the measurements of a device: steps, each a command of its own, the most telling first.

The steps of a GPU answer the first questions in three calls of ten minutes: correct results, rows of suite ``paper``,
and the cost of attention.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from synthbench.forms import kernels
from synthbench.mechanisms import MECHANISMS
from synthbench.runner.environment import usable_cores

TESTS = Path(__file__).parents[1] / "tests"
"""The steps run in a checkout."""

KERNELS = "slay,linear,performer,cosformer,softmax,yat-spherical"
"""Mechanisms with kernels and goals."""
FEW = "slay,linear,performer,softmax,yat-spherical"
"""Those that the first measurements are of."""
UNTIL_FULL = {"max_seconds": 4, "max_gigabytes": 1_000_000}
"""On a GPU only its own memory ends a form, or the time."""
SEEDS = "42-44"
"""Mechanisms and seeds that a minute of suite ``paper`` trains."""

KERNEL_TESTS = "forms/kernels/test_on_gpu.py"
TESTED_KERNELS = ("slay", "yat-spherical")
"""The mechanisms in ``KERNEL_TESTS``, whose kernels take minutes to compile one after the other."""
OTHER_TESTS = {
    "capture": "training/test_steps.py",
    "same-rows": "runner/test_same_rows.py",
    "fla": "benchmarks/test_flash_linear_attention.py",
}

TINY: dict[str, dict[str, Any]] = {
    "run": {"task": "copy:length=8", "mech": "linear", "seeds": "42", "steps": 8, "limit": 8},
    "scaling": {"mech": "slay,linear", "lengths": "16,32", "batch_size": 2, "repeats": 1},
    "suite": {"mech": "linear", "lengths": 8, "batched": 3, "steps": 2, "repeats": 1},
    "fidelity": {"budget": "small", "seeds": 0, "repeats": 1},
    "fla": {"lengths": "16,32", "repeats": 1},
    "context": {"gigabytes": 0.01, "longest": 256, "mech": "linear"},
}
"""Options of a quick step, by command, in place of its own."""


@dataclass(frozen=True)
class Step:
    """A command that measures something."""

    name: str
    arguments: tuple[str, ...]
    """Behind the Python interpreter."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Differences from this process's environment."""

    def within(self, **environment: str) -> "Step":
        """The same command with further variables in its environment."""
        return replace(self, environment={**self.environment, **environment})


def steps_for(device: torch.device, folder: Path, *, is_quick: bool = False) -> list[Step]:
    """The steps for a device; quick ones prove on any device that all steps of a GPU run."""
    place = _Place(device, folder, is_quick)
    return list(_on_gpu(place) if is_quick or device.type == "cuda" else _on_cpu(place))


@dataclass(frozen=True)
class _Place:
    """Device that steps measure, and the folder of their rows."""

    device: torch.device
    folder: Path
    is_quick: bool

    def bench(self, name: str, kind: str, **options: Any) -> Step:
        """A bench with rows; steps of one kind share a file, so none measures what another has."""
        chosen = {**options, **TINY[kind]} if self.is_quick else options
        rows = self.folder / f"{kind}.parquet"
        return Step(name, _synthbench("bench", kind, device=self.device, out=rows, **chosen))

    def run(self, name: str, suite: str, **options: Any) -> Step:
        """A suite into a store of its own; its last line says how long it took."""
        chosen = {**options, **TINY["run"]} if self.is_quick else options
        results = self.folder / name
        return Step(name, _synthbench("run", suite=suite, device=self.device, results=results, **chosen))


def _synthbench(*words: str, **options: Any) -> tuple[str, ...]:
    """A command line of this package."""
    return ("-m", "synthbench", *words, *_options(**options))


def _options(**options: Any) -> tuple[str, ...]:
    """Options of a command line: ``max_seconds=4`` is ``--max-seconds 4``, and ``sweep=True`` is ``--sweep``."""
    given: list[str] = []
    for name, value in options.items():
        given += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return tuple(given)


def _on_cpu(place: _Place) -> Iterator[Step]:
    to_16k = {"lengths": _powers(7, 14), "max_gigabytes": 8}
    chosen = {"forms": "layer,attend,streamed"}
    yield Step("doctor", _synthbench("doctor"))
    yield place.bench("scaling", "scaling", mech=_mechanisms(is_quadratic=False), **to_16k, **chosen, max_seconds=240)
    yield place.bench("scaling-forms", "scaling", mech=KERNELS, **to_16k, max_seconds=20)
    yield place.bench("fidelity", "fidelity", budget="small,medium,large")
    yield place.bench("fidelity-sweep", "fidelity", sweep=True)
    yield place.bench("context", "context", gigabytes=1, longest=2**17, max_seconds=10)
    yield place.bench("suite", "suite", batched=4, steps=20, lengths="32,64,256")
    yield place.bench(
        "scaling-quadratic", "scaling", mech=_mechanisms(is_quadratic=True), **to_16k, **chosen, max_seconds=10
    )


def _on_gpu(place: _Place) -> Iterator[Step]:
    # Kernels are compiled, whatever the environment says of Triton's interpreter; a broken plugin fails no step.
    environment = {"TRITON_INTERPRET": "0", "SYNTHBENCH_PLUGINS": "off", **_good_assembler(place.device)}
    for step in (*_first_hour(place), *_rest(place)):
        yield step.within(**environment)


def _good_assembler(device: torch.device) -> dict[str, str]:
    """The environment that gives kernels a good assembler, where Triton's is not and the caller has chosen none."""
    if device.type != "cuda" or not torch.cuda.is_available() or find_spec("triton") is None:
        return {}
    found = kernels.load("_assembler").substitute(torch.cuda.get_device_capability(device))
    return {variable: path for variable, path in found.items() if variable not in os.environ}


def _first_hour(place: _Place) -> Iterator[Step]:
    yield Step("doctor", _synthbench("doctor"))
    yield place.run("smoke", "smoke")
    yield place.run("paper", "paper", seeds=SEEDS)
    yield from _tests()
    kernel = {"lengths": "16384,131072", "forms": "kernel,attend", **UNTIL_FULL}
    yield place.bench("scaling-kernels", "scaling", mech="slay,linear,yat-spherical", **kernel, dtype="bfloat16")
    yield place.bench("suite", "suite", batched="1,16,64", steps=20, lengths="32,64,256")
    few = {"mech": FEW, "lengths": _powers(10, 17), "forms": "attend,kernel,streamed", **UNTIL_FULL}
    yield place.bench("scaling-few-bfloat16", "scaling", **few, dtype="bfloat16")
    yield place.bench("scaling-few-float32", "scaling", **few)
    published = {**few, "lengths": "4096,16384", "forms": "published,dense"}
    yield place.bench("scaling-published", "scaling", **published, dtype="bfloat16")


def _rest(place: _Place) -> Iterator[Step]:
    to_128k = {"lengths": _powers(7, 17), **UNTIL_FULL}
    long = {"lengths": _powers(18, 24), "forms": "layer,attend,streamed,kernel", **UNTIL_FULL, "max_seconds": 10}
    wide = {"lengths": "1024,4096,16384", "batch_size": 32, **UNTIL_FULL}
    training = {"steps": 20, "lengths": "32,64,256"}
    half = {"dtype": "bfloat16"}
    yield place.bench("scaling-bfloat16", "scaling", mech=KERNELS, **to_128k, **half)
    yield place.bench("scaling-float32", "scaling", mech=KERNELS, **to_128k)
    yield place.bench("suite-batched", "suite", batched="1,2,4,8,16,32,64", **training)
    yield place.bench("suite-rates", "suite", batched="12,48", rates=3, **training)
    yield place.bench("fidelity", "fidelity", budget="small,medium,large")
    yield place.bench("fidelity-sweep", "fidelity", sweep=True)
    yield place.bench("scaling-until-full", "scaling", mech=KERNELS, **long, **half)
    yield place.bench("scaling-batch", "scaling", mech=KERNELS, **wide, **half)
    yield place.bench("context", "context", gigabytes=_gigabytes_of(place.device), longest=2**24, **half)
    # flash-linear-attention tunes for minutes, so it has its own step.
    fla = {"device": place.device, "out": place.folder / "scaling.parquet", **(TINY["fla"] if place.is_quick else {})}
    yield Step("scaling-fla", ("-m", "benchmarks.flash_linear_attention", *_options(**fla)))
    yield place.run("paper-cell-by-cell", "paper", seeds=SEEDS, batched=3)
    yield place.bench("scaling-others", "scaling", mech="all", **to_128k, **half)


def _tests() -> Iterator[Step]:
    """The tests that need a GPU, from a checkout: a step for each file, so that what passed is not run again.

    Kernels are tested by a process a core where pytest-xdist is installed, since what takes time is compiling them;
    else a mechanism at a time.
    """
    if not TESTS.is_dir():
        return
    if find_spec("xdist") is not None:
        yield _test("tests-kernels", KERNEL_TESTS, "--numprocesses", str(usable_cores()), "--dist", "worksteal")
    else:
        for mechanism in TESTED_KERNELS:
            yield _test(f"tests-kernels-{mechanism}", KERNEL_TESTS, "-k", mechanism)
    for name, file in OTHER_TESTS.items():
        yield _test(f"tests-{name}", file)


def _test(name: str, file: str, *options: str) -> Step:
    # Without the shape checker, which may not be installed there, and whatever other packages warn of.
    plainly = ("-o", "addopts=--import-mode=importlib", "-W", "default", "-p", "no:cacheprovider")
    return Step(name, ("-m", "pytest", "-m", "gpu", "-q", *plainly, *options, str(TESTS / file)))


def _mechanisms(*, is_quadratic: bool) -> str:
    """All whose time grows with the square of the length, or all others."""
    names = MECHANISMS.usable()
    return ",".join(name for name in names if MECHANISMS[name].complexity.startswith("T^2") == is_quadratic)


def _powers(first: int, last: int) -> str:
    """Powers of two, a comma list."""
    return ",".join(str(2**power) for power in range(first, last + 1))


def _gigabytes_of(device: torch.device) -> str:
    """Nine tenths of its memory; a blank to fill in where the plan is for a GPU that is elsewhere."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return "GIGABYTES"
    return f"{0.9 * torch.cuda.get_device_properties(device).total_memory / 2**30:.0f}"
