"""``synthbench doctor``: check an installation and a results folder for faults."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import typer

from synthbench.cli.options import AsJson, Plugins, Results, load_what_loads
from synthbench.cli.output import print_facts
from synthbench.distribution import conflict
from synthbench.errors import SynthbenchError

State = Literal["ok", "note", "broken"]
Finding = dict[str, str]


def doctor(results: Results = Path("results"), plugin: Plugins = None, as_json: AsJson = False) -> None:
    """Check versions, devices, threads and the results folder; exit 1 if something is broken."""
    findings = examine(results, load_what_loads(plugin))
    print_facts(findings, ["check", "state", "detail"], as_json=as_json)
    if any(finding["state"] == "broken" for finding in findings):
        raise typer.Exit(1)


def examine(results: Path, broken_plugins: Mapping[str, str]) -> list[Finding]:
    """Check the installation and the results; each check ends as ``ok``, ``note`` (works, with a remark) or ``broken``.

    Args:
        results: Folder of the results.
        broken_plugins: Reasons why plugins cannot be loaded, by plugin name.
    """
    from synthbench.runner.environment import usable_cores

    return [
        *_versions(),
        *([_finding("package", "broken", problem)] if (problem := conflict()) else []),
        _devices(),
        _finding("threads", "ok", f"{usable_cores()} usable cores; a worker process of one thread each"),
        *_components(),
        *(_finding("plugin", "broken", why) for why in broken_plugins.values()),
        *_suites(),
        _folder(results),
        _store(results),
    ]


def _finding(check: str, state: State, detail: str) -> Finding:
    return {"check": check, "state": state, "detail": detail}


def _versions() -> list[Finding]:
    from synthbench.runner.environment import commit_warning, software

    known = software()
    sha = known["git_sha"]
    checkout = f"commit {sha[:12]}{', changed since' if known['git_dirty'] else ''}" if sha else "no checkout"
    warning = commit_warning()
    names = ("synthbench_version", "python", "torch", "numpy", "os")
    return [
        *(_finding(name.removesuffix("_version"), "ok", str(known[name])) for name in names),
        _finding("code", "note" if known["git_dirty"] else "ok", checkout),
        *([] if warning is None else [_finding("commit", "note", warning)]),
    ]


def _devices() -> Finding:
    import torch

    count = torch.cuda.device_count()
    if not count:
        return _finding("devices", "ok", "cpu only")
    free = [torch.cuda.mem_get_info(index) for index in range(count)]
    cards = [
        f"cuda:{index} {torch.cuda.get_device_name(index)}, {left / 2**30:.1f} of {total / 2**30:.1f} GiB free"
        for index, (left, total) in enumerate(free)
    ]
    return _finding("devices", "ok", "; ".join(cards))


def _components() -> Iterator[Finding]:
    from synthbench.contract.components import REGISTRIES

    for registry in REGISTRIES.values():
        broken = registry.broken()
        yield _finding(f"{registry.kind}s", "ok", f"{len(registry) - len(broken)} registered")
        yield from (_finding(f"{registry.kind} {unit}", "broken", why) for unit, why in broken.items())


def _suites() -> Iterator[Finding]:
    from synthbench.cli.listing import attempted
    from synthbench.suites import load_suite, suite_names

    broken: dict[str, str] = {}
    for name, suite in attempted(suite_names(), load_suite, broken).items():
        yield _finding(f"suite {name}", "ok", f"version {suite.version}, {len(suite.tasks)} tasks")
    yield from (_finding(f"suite {name}", "broken", why) for name, why in broken.items())


def _folder(results: Path) -> Finding:
    """Check that files can be written in the results folder, and report the free space on its disk.

    If the folder does not exist, its nearest existing parent is checked instead.
    """
    existing = results.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as problem:
        return _finding("results folder", "broken", f"cannot write to {existing}: {problem.strerror}")
    state: State = "ok" if free > 2**30 and os.access(existing, os.W_OK) else "note"
    return _finding("results folder", state, f"{existing}, {free / 2**30:.1f} GiB free")


def _store(results: Path) -> Finding:
    from synthbench.results import Store

    if not results.exists():
        return _finding("results store", "ok", f"none yet at {results}")
    try:
        store = Store.open(results, create=False)
        statuses = Counter(store.statuses().values())
    except SynthbenchError as problem:
        return _finding("results store", "broken", str(problem))
    counts = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())) or "no rows"
    damaged = len(store.quarantined)
    state: State = "note" if damaged else "ok"
    return _finding("results store", state, counts + (f", {damaged} damaged files left out" if damaged else ""))
