"""A request: the runs that the user asks for, and how to run them; and what the jobs of a command share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from synthbench.options import RUN_SUITE


class Kind(NamedTuple):
    """Properties of an executor (a way to run jobs); ``package`` is the optional package that it needs, if any."""

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
"""Values of ``--executor``. Each value except ``auto`` names a module of ``runner/executors`` and the class in it."""


@dataclass(frozen=True)
class Request:
    """A request for runs; every field except ``only`` is a command-line option of ``synthbench run``."""

    suite: str = RUN_SUITE
    tasks: Sequence[str] = ("all",)
    mechanisms: Sequence[str] = ()
    """Mechanisms by name or expression, as for ``--mech``; empty: those of the suite."""
    seeds: Sequence[int] = ()
    """Root seeds; empty: those of the suite."""
    rates: Sequence[float] = ()
    """Some of the suite's learning rates. Empty: all of them."""
    block: str | None = None
    """The block around each mechanism; None: that of the suite."""
    positions: str | None = None
    """Position encoding for all mechanisms; None: as in the suite.

    There is one exception. If ``condition`` is given for a suite made before conditions were introduced, None means
    each mechanism's own encoding.
    """
    condition: str | None = None
    """``stock`` (as the authors build it) or ``bare`` (the scores or the recurrence alone); None: that of the suite."""
    match: str | None = None
    """Size that all mechanisms get: ``params`` or ``state``, with a number (``state=4096``) or without.

    Without a number, the size is that of the suite's first mechanism. None: every mechanism has the size that its
    arguments give.
    """
    device: str = "auto"
    steps: int | None = None
    limit: int | None = None
    results: Path = Path("results")
    executor: str = "auto"
    address: str | None = None
    """Address of a running Ray cluster, or ``local`` to try the slurm executor on this machine."""
    workers: int | None = None
    per_gpu: int | None = None
    """Number of processes that share a GPU; None: one."""
    timeout_s: float | None = None
    group_size: int | None = None
    rerun: str = "none"
    predictions: Path | None = None
    """Folder for the predictions of each trained model on its test, ``<run_id>.npz``; None to keep no predictions."""
    deterministic: bool = False
    """True to use only deterministic algorithms; rows made without them are then made again."""
    shard: str | None = None
    """Part of the plan to run; ``2/3`` is the second of three parts. None: all of it."""
    only: Collection[tuple[str, str]] | None = None
    """Pairs of task and mechanism names to run; None: every task with every mechanism."""
    plugins: Sequence[str] = ()
    """Files and modules with further components, besides those of synthbench and of installed packages."""


@dataclass(frozen=True)
class RunContext:
    """Settings shared by all jobs of a command."""

    results: Path
    device: str
    executor: str
    planned_at: float
    """``time.time()`` when the plan was made."""
    plugins: Sequence[str] = ()
    """Plugins that a worker process loads before it looks for a component."""
    violations: Mapping[str, str] = field(default_factory=dict)
    """Message of the first failed check, by name of the plugin mechanism; mechanisms without failures are left out."""
    is_deterministic: bool = False
    """True if only deterministic algorithms may be used."""
    is_alone: bool = True
    """True if no other worker uses the memory of the device at the same time."""
    predictions: Path | None = None
    """Folder for the predictions of models on their tests; None to keep no predictions."""
    replaced: Mapping[str, datetime] = field(default_factory=dict)
    """Finishing times of the rows that this command replaces, by run id; each new row must have a later time."""
    foreign: tuple[str, ...] = ()
    """Modules of the jobs' components that do not come with synthbench."""
    driver: str = field(default_factory=lambda: uuid4().hex[:8])
    """Random id of this command, used in the names of its logs, because other commands may use the same store."""
