"""How much of a request is done, counted without torch, which takes seconds to import.

The ids of rows need the mechanisms' versions and options, and their classes need torch. Those that come with synthbench
are in an index, ``components.json``, which ``python docs/generate.py`` writes.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from synthbench.canonical import json_entries, run_id_of
from synthbench.entry_points import offers
from synthbench.errors import UsageError
from synthbench.knobs import Value
from synthbench.registry import version_of
from synthbench.results import Store
from synthbench.runner.request import Request
from synthbench.suites import Suite, load_suite, suite_names
from synthbench.tasks import TASKS
from synthbench.terms import select
from synthbench.training import identity
from synthbench.training.identity import Component
from synthbench.training.ladder import sized_in

ACCELERATORS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""On Linux one of these exists wherever a CUDA or ROCm build of torch finds a device."""


class Part(NamedTuple):
    """What the ids of rows need to know of a mechanism, a position encoding or a block."""

    version: str
    options: dict[str, Value]
    """All of them with their defaults, but for additions."""
    family: str = ""
    rotates: bool = False
    """Of a position encoding: whether it rotates queries and keys. Of a mechanism: whether it has any."""


Cells = Iterable[tuple[str, Sequence[str]]]
"""The category and the ids of the rows of each cell."""


def tally(cells: Cells, statuses: Mapping[str, str]) -> list[dict[str, Any]]:
    """How many rows are done, failed and missing: one entry a category, and one for all.

    Args:
        cells: What is planned.
        statuses: How the rows of a store ended, by their ids.
    """
    counts: dict[str, Counter[str]] = {}
    for category, run_ids in cells:
        ends = [statuses.get(run_id, "missing") for run_id in run_ids]
        for group in (category, "all"):
            counts.setdefault(group, Counter()).update(ends)
    counts["all"] = counts.pop("all")  # last
    return [
        {
            "category": group,
            "planned": count.total(),
            "done": count["ok"],
            "failed": count.total() - count["ok"] - count["missing"],
            "missing": count["missing"],
        }
        for group, count in counts.items()
    ]


def statuses_in(results: Path) -> dict[str, str]:
    """How the rows of a store ended, by their ids; none where there is no store yet."""
    return Store.open(results, create=False).statuses() if (results / "store.json").exists() else {}


def quick_cells(request: Request) -> list[tuple[str, list[str]]] | None:
    """What a request plans, where the index knows all of it; None where the components themselves must be asked."""
    suite = load_suite(request.suite)
    if not _is_plain(request, suite):
        return None
    known = index()["mechanisms"]
    others = sorted({*known, *offers("mechanisms")} - set(suite.mechanisms))
    try:
        tasks = select("task", request.tasks, list(suite.tasks), lambda name: TASKS[name].category())
        terms = list(request.mechanisms) or [",".join(suite.mechanisms)]
        mechanisms = select("mechanism", terms, [*suite.mechanisms, *others], lambda name: known[name].family)
    except (UsageError, KeyError):
        return None  # said better where everything is known
    if not set(mechanisms) <= set(known) or any((*mechanisms.values(), *tasks.values())):
        return None
    seeds = list(request.seeds) or suite.seeds
    return [(TASKS[task].category(), _ids(suite, task, name, seeds)) for task in tasks for name in mechanisms]


@cache
def index() -> dict[str, dict[str, Part]]:
    """The built-in mechanisms, position encodings and blocks by name, each kind by that of its package."""
    content = json.loads(files("synthbench.runner").joinpath("components.json").read_text(encoding="utf-8"))
    return {kind: {name: Part(**part) for name, part in parts.items()} for kind, parts in content.items()}


def _is_plain(request: Request, suite: Suite) -> bool:
    """Whether a suite that comes with synthbench is asked for as it is, on a CPU."""
    changes = (
        *(request.block, request.positions, request.match, request.shard, request.steps, request.limit),
        request.rates or None,
    )
    may_have_accelerator = sys.platform != "linux" or any(Path(device).exists() for device in ACCELERATORS)
    on_cpu = request.device == "cpu" or (request.device == "auto" and not may_have_accelerator)
    is_built_in = request.suite in suite_names() and request.suite not in offers("suites")
    around = {suite.model.positions, suite.model.positions_otherwise or suite.model.positions}
    is_known = suite.model.block in index()["blocks"] and around <= set(index()["positions"])
    return on_cpu and is_built_in and is_known and not request.plugins and all(change is None for change in changes)


def _ids(suite: Suite, task: str, mechanism: str, seeds: Sequence[int]) -> list[str]:
    """The ids of the rows of one cell, as :class:`synthbench.training.cell.Member` has them; a test compares both."""
    common = json_entries(identity.of_cell(suite, _components(suite, task, mechanism), device_type="cpu"))
    rates = suite.training.learning_rates if suite.tuning is None else (None,)
    of_members = [identity.of_member(suite, seed, rate) for rate in rates for seed in seeds]
    return [run_id_of({**common, **json_entries(entries)}) for entries in of_members]


def _components(suite: Suite, task: str, mechanism: str) -> dict[str, Component]:
    model = suite.model
    length, options = sized_in(suite, task, {})
    part = index()["mechanisms"][mechanism]
    has_nothing_to_turn = index()["positions"][model.positions].rotates and not part.rotates
    positions_name = model.positions_otherwise or model.positions if has_nothing_to_turn else model.positions
    positions, block = index()["positions"][positions_name], index()["blocks"][model.block]
    of_task = identity.task_options(suite, TASKS[task], length, options)
    return {
        "task": Component(task, version_of(TASKS[task]), of_task),
        "mech": Component(mechanism, part.version, _with(part.options, suite.mechanisms.get(mechanism, {}))),
        "block": Component(model.block, block.version, block.options),
        "positions": Component(positions_name, positions.version, positions.options),
    }


def _with(defaults: Mapping[str, Value], given: Mapping[str, Any]) -> dict[str, Value]:
    """The options with those that are given; a whole number given for a float becomes one."""
    converted = {
        name: float(value) if isinstance(defaults.get(name), float) else value for name, value in given.items()
    }
    return {**defaults, **converted}
