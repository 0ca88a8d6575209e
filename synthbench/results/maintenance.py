"""Maintenance of a store: count its contents, find and repair damage, and delete files that are no longer needed."""

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from synthbench.results.schema import STATUSES
from synthbench.results.store import (
    FOLDERS,
    KEYS,
    Store,
    collected,
    curves_of,
    is_old,
    newest,
    newest_numbers,
    only,
    only_there,
    parts_of,
    status_of,
    verifications_of,
)

_INDEX = (*KEYS, "migrated_from", "curve_sha256")

_GROUPS = (
    ("suite", "suite_version"),
    ("task", "task_version"),
    ("mech", "mech_version"),
    ("device_type", "device_name"),
    ("synthbench_version", "schema_version"),
)
"""Pairs of columns; rows are counted for each pair of values in these columns."""
COUNTED = tuple(column for group in _GROUPS for column in group)
"""Columns that :func:`contents` needs in addition to ``status``."""


def contents(store: Store, rows: pa.Table) -> dict[str, Any]:
    """Count rows and files of a store, for the output of the command ``synthbench store ls``.

    Args:
        store: The store; all of its files are counted.
        rows: Rows of this store; only these rows are counted.
    """
    groups, places = [], []
    for of in _GROUPS:
        counted = rows.select([*of, "status"]).group_by([*of, "status"]).aggregate([([], "count_all")])
        statuses: dict[tuple[str, str], dict[str, int]] = {}
        for name, version, status, count in zip(*counted.to_pydict().values(), strict=True):
            statuses.setdefault((name, str(version)), {})[status] = count
        for (name, version), counts in sorted(statuses.items()):
            ended = {status: counts[status] for status in STATUSES if status in counts}
            group = {"of": of[0], "name": name, "version": version, "rows": sum(counts.values()), "statuses": ended}
            groups.append(group)
    for place in (*FOLDERS, "logs"):
        files = [Path(folder, file) for folder, _, names in os.walk(store.root / place) for file in names]
        found = [status for status in map(status_of, files) if status is not None]  # files may go meanwhile
        if found:
            places.append({"place": place, "files": len(found), "bytes": sum(status.st_size for status in found)})
    left_out = [asdict(report) for report in store.quarantined]
    return {"num_rows": rows.num_rows, "groups": groups, "places": places, "left_out": left_out}


@dataclass(frozen=True)
class Broken:
    """A file of a store that is damaged or contains a damaged row."""

    what: str
    """The file, as a path relative to the store."""
    why: str
    is_repaired: bool


def examine(store: Store, *, is_repairing: bool) -> list[Broken]:
    """Read all files of a store, check all rows, and list the damaged files and rows.

    Args:
        store: The store; for a repair, it must be open for writing.
        is_repairing: True to move damaged files and rows to ``quarantine/``, and also rows whose learning curve is
            lost. Repeating the ``run`` command then trains these runs again.
    """
    rows = newest(collected(parts_of(store, _INDEX)), _INDEX)
    _, lost = curves_of(store, rows)
    verifications_of(store)
    repaired = set[str]()
    if is_repairing:
        reported = {store.root / report.file for report in store.quarantined if not report.is_moved}
        damaged = [path for path in store.files_of("runs") if path in reported]
        if damaged or lost:
            store.take_out(damaged, only(rows, lost)["row_sha256"].to_pylist())
        repaired |= {f"curves/run-{name}.parquet" for name in lost}
        repaired |= {report.file for report in store.quarantined if report.is_moved}
    faults = dict.fromkeys((report.file, report.reason) for report in store.quarantined)
    return [Broken(file, reason, file in repaired) for file, reason in faults]


@dataclass(frozen=True)
class Leftover:
    """A file that is no longer needed."""

    file: str
    why: str
    bytes: int


def collect(store: Store, *, is_dry: bool) -> list[Leftover]:
    """Delete unneeded files and list them: leftovers of killed processes, files of replaced rows, and unused curves.

    Files that are merged from many jobs are never deleted. Any other file of rows is deleted only if each of its rows
    is also in another file, or was replaced by a newer row. A file of curves without rows is deleted only if it is over
    an hour old, because curves are written before their rows.

    Args:
        store: The store; it must be open for writing unless ``is_dry`` is True.
        is_dry: True to list the files without deleting them.
    """
    with contextlib.nullcontext() if is_dry else store.alone():
        partials, logs = store.stale_partials(), store.stale_logs()
        rows = collected(parts_of(store, KEYS))
        numbers = newest_numbers(rows)
        needed = {
            *rows["file"].take(numbers).unique().to_pylist(),  # of two files with a row the later, a compact one
            *only_there(rows, numbers)["file"].unique().to_pylist(),
            *(report.file for report in store.quarantined),  # a file with damaged rows stays
        }
        files = sorted({*rows["file"].unique().to_pylist()} - needed)
        replaced = [store.root / name for name in files if name.startswith("runs/")]
        kept = {path.name for path in store.loose() if path not in replaced}
        orphans = [path for path in store.loose("curves") if path.name not in kept and is_old(path)]
        reasons = {
            **dict.fromkeys(partials, "half written by a writer that was killed"),
            **dict.fromkeys(logs, "the empty log of a job that was killed"),
            **dict.fromkeys(replaced, "its rows were replaced, or are in another file too"),
            **dict.fromkeys(orphans, "no row belongs to what is in it"),
        }
        sizes = {path: status.st_size if (status := status_of(path)) else 0 for path in reasons}
        if not is_dry:
            store.remove(reasons)
    return [Leftover(path.relative_to(store.root).as_posix(), why, sizes[path]) for path, why in reasons.items()]
