"""A request: what to run, and how."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from synthbench.options import RUN_SUITE


class Kind(NamedTuple):
    """Abilities of an executor, and the package that it needs."""

    package: str | None = None
    is_elsewhere: bool = False
    """True if it runs jobs on other machines."""
    divides_gpus: bool = False
    """True if it can run several processes on a GPU."""


EXECUTORS = {
    "auto": Kind(divides_gpus=True),
    "inline": Kind(),
    "pool": Kind(divides_gpus=True),
    "ray": Kind("ray", is_elsewhere=True, divides_gpus=True),
    "slurm": Kind("submitit", is_elsewhere=True),
}
"""Values of ``--executor``; but for ``auto``, each is a class of its name in a module of ``runner/executors``."""


@dataclass(frozen=True)
class Request:
    """Request for runs; every field but ``only`` is an option of ``synthbench run``."""

    suite: str = RUN_SUITE
    tasks: Sequence[str] = ("all",)
    mechanisms: Sequence[str] = ()
    """Empty: those that the suite names."""
    seeds: Sequence[int] = ()
    """Empty: those of the suite."""
    rates: Sequence[float] = ()
    """Some of the suite's learning rates. Empty: all of them."""
    block: str | None = None
    """None: the suite's."""
    positions: str | None = None
    """None: the suite's; if ``condition`` differs from one older than conditions, each mechanism's own."""
    condition: str | None = None
    """``stock`` or ``bare``. None: the suite's."""
    match: str | None = None
    """``params`` or ``state``, with a number or that of the suite's first mechanism: what all are given alike."""
    device: str = "auto"
    steps: int | None = None
    limit: int | None = None
    results: Path = Path("results")
    executor: str = "auto"
    address: str | None = None
    """Of a Ray cluster that is running, or ``local`` to try the slurm executor out."""
    workers: int | None = None
    per_gpu: int | None = None
    """Processes that share a GPU; None: one."""
    timeout_s: float | None = None
    group_size: int | None = None
    rerun: str = "none"
    predictions: Path | None = None
    """Folder that gets what each trained model predicts in the test, ``<run_id>.npz``; None: nothing is kept."""
    deterministic: bool = False
    """Deterministic algorithms only; a row that was made without counts as missing."""
    shard: str | None = None
    """``2/3``: of three parts of the plan the second."""
    only: Collection[tuple[str, str]] | None = None
    """Names of the tasks and mechanisms to run together; None: each of the tasks with each of the mechanisms."""
    plugins: Sequence[str] = ()
    """Files and modules whose units are used besides those of synthbench and of installed packages."""
