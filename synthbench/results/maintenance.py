"""Care of a store: what it holds, what in it is broken, what in it is no longer needed."""

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
"""Columns by whose values rows are counted, each with the one that tells its versions apart."""
COUNTED = tuple(column for group in _GROUPS for column in group)
"""Columns that :func:`contents` needs, beside the status."""


def contents(store: Store, rows: pa.Table) -> dict[str, Any]:
    """Count some rows of a store, and all of its files: the facts of ``store ls``.

    Args:
        store: Where the rows were read.
        rows: Those that are counted.
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
        found = [status for status in map(status_of, files) if status is not None]  # a driver beside removes files
        if found:
            places.append({"place": place, "files": len(found), "bytes": sum(status.st_size for status in found)})
    left_out = [asdict(report) for report in store.quarantined]
    return {"num_rows": rows.num_rows, "groups": groups, "places": places, "left_out": left_out}


@dataclass(frozen=True)
class Broken:
    """Something in a store that does not hold."""

    what: str
    """A file of the store."""
    why: str
    is_repaired: bool


def examine(store: Store, *, is_repairing: bool) -> list[Broken]:
    """Read every file of a store and check every row; what is broken in it.

    Args:
        store: Opened for writing if it is to be repaired.
        is_repairing: Take out what is damaged, into ``quarantine/``, so that the same ``run`` makes it again. A row
            that lost its curve is taken out too.
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
    """A file that nothing needs."""

    file: str
    why: str
    bytes: int


def collect(store: Store, *, is_dry: bool) -> list[Leftover]:
    """Delete what no reader needs: what killed writers left, rows that another row replaced, curves without a row.

    A file of rows goes only if it is not compacted and no row that counts is in it alone. A file of curves goes only if
    it is older than any writer takes to write the rows after it.

    Args:
        store: Opened for writing, unless this is dry.
        is_dry: Only say what would be deleted.
    """
    with contextlib.nullcontext() if is_dry else store.alone():
        partials, logs = store.stale_partials(), store.stale_logs()
        rows = collected(parts_of(store, KEYS))
        numbers = newest_numbers(rows)
        needed = {
            *rows["file"].take(numbers).unique().to_pylist(),  # of two files with one row the later, a compact one
            *only_there(rows, numbers)["file"].unique().to_pylist(),
            *(report.file for report in store.quarantined),  # other rows in it do not hold
        }
        files = sorted({*rows["file"].unique().to_pylist()} - needed)
        replaced = [store.root / name for name in files if name.startswith("runs/")]
        kept = {path.name for path in store.loose() if path not in replaced}
        orphans = [path for path in store.loose("curves") if path.name not in kept and is_old(path)]
        leftovers = [
            *(_leftover(store, path, "half written by a writer that was killed") for path in partials),
            *(_leftover(store, path, "the empty log of a job that was killed") for path in logs),
            *(_leftover(store, path, "its rows were replaced, or are in another file too") for path in replaced),
            *(_leftover(store, path, "no row belongs to what is in it") for path in orphans),
        ]
        if not is_dry:
            store.remove([*partials, *logs, *replaced, *orphans])
    return leftovers


def _leftover(store: Store, path: Path, why: str) -> Leftover:
    status = status_of(path)
    return Leftover(path.relative_to(store.root).as_posix(), why, status.st_size if status else 0)
