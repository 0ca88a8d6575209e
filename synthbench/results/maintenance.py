"""Care of a store: what it holds, what in it is broken, what in it is no longer needed."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from synthbench.results.folder import Quarantined, is_old, size_of
from synthbench.results.reading import (
    INDEX,
    are_of_other_sources,
    curves_of,
    newest,
    row_files,
    rows_of,
    verifications_of,
)
from synthbench.results.schema import STATUSES
from synthbench.results.store import Store

_GROUPS = (
    ("suite", "suite_version"),
    ("task", "task_version"),
    ("mech", "mech_version"),
    ("device_type", "device_name"),
    ("synthbench_version", "schema_version"),
)
"""Columns by whose values rows are counted, each with the one that tells its versions apart."""
COUNTED = tuple(column for group in _GROUPS for column in group)
"""What :func:`contents` needs of a row, beside its status."""


@dataclass(frozen=True)
class Group:
    """Rows that share a value."""

    of: str
    """The column: ``suite``, ``task``, ``mech``, ..."""
    name: str
    version: str
    rows: int
    statuses: Mapping[str, int]


@dataclass(frozen=True)
class Place:
    """What lies in a folder of a store."""

    place: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Contents:
    """What a store holds."""

    num_rows: int
    groups: tuple[Group, ...]
    places: tuple[Place, ...]
    left_out: tuple[Quarantined, ...]
    """Files and rows that cannot be trusted and lie among the others."""


def contents(store: Store, rows: pa.Table) -> Contents:
    """Count some rows of a store, and all of its files.

    Args:
        store: Where the rows were read.
        rows: Those that are counted.
    """
    groups = []
    for name, version in _GROUPS:
        counted = (
            rows.select([name, version, "status"]).group_by([name, version, "status"]).aggregate([([], "count_all")])
        )
        statuses: dict[tuple[str, str], dict[str, int]] = {}
        for row in counted.to_pylist():
            statuses.setdefault((row[name], str(row[version])), {})[row["status"]] = row["count_all"]
        for key, counts in sorted(statuses.items()):
            ended: dict[str, int] = {status: counts[status] for status in STATUSES if status in counts}
            groups.append(Group(name, *key, sum(counts.values()), ended))
    return Contents(rows.num_rows, tuple(groups), tuple(_places(store.root)), tuple(store.quarantined))


def _places(root: Path) -> list[Place]:
    places = []
    for name in ("runs", "curves", "compact", "verified", "_tmp", "quarantine", "logs"):
        files = [Path(folder, file) for folder, _, names in os.walk(root / name) for file in names]
        sizes = [size for size in map(size_of, files) if size is not None]  # a driver beside renames and removes
        if sizes:
            places.append(Place(name, len(sizes), sum(sizes)))
    return places


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
    # Between the look at a row and the look at its curve a driver may replace both, and a good row would be taken out.
    with store.folder.writing() if is_repairing else contextlib.nullcontext():
        rows = rows_of(store.folder, names=INDEX)
        curves = curves_of(store.folder, rows)
        verifications_of(store.folder)
        is_in_compact = any(report.file.startswith("compact/") and not report.is_moved for report in store.quarantined)
        repaired = set()
        if is_repairing and (curves.lost or is_in_compact):
            store.compact(without=curves.lost)
            repaired |= {f"curves/run-{name}.parquet" for name in curves.lost}
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

    A file goes only if no row that counts is in it alone, and curves only if they are older than any writer takes to
    write the row after its curve. Replaced rows among rows that count stay until the store is compacted.

    Args:
        store: Opened for writing, unless this is dry.
        is_dry: Only say what would be deleted.
    """
    with contextlib.nullcontext() if is_dry else store.folder.alone():
        partials, logs = store.folder.stale_partials(), store.folder.stale_logs()
        sources = row_files(store.folder, names=INDEX)
        rows = newest(sources.table)
        # Nobody made the rows of another source again: compaction keeps them apart, and until then they stay.
        rows = pa.concat_tables([rows, sources.table.filter(are_of_other_sources(sources.table, rows))])
        curves = curves_of(store.folder, rows)
        counting = set(rows["row_sha256"].to_pylist())
        pairs = zip(sources.table["row_sha256"].to_pylist(), sources.owners.tolist(), strict=True)
        # Of two files with one row the later, a compact one, is needed.
        needed = set({checksum: owner for checksum, owner in pairs if checksum in counting}.values())
        unneeded = [file for number, file in enumerate(sources.files) if number not in needed]
        replaced = [file for file in unneeded if file.path not in sources.faults]
        orphans = [file for file in curves.unused if is_old(file.path)]
        leftovers = [
            *(_leftover(store, path, "half written by a writer that was killed") for path in partials),
            *(_leftover(store, path, "the empty log of a job that was killed") for path in logs),
            *(_leftover(store, file.path, "its rows were replaced, or are in another file too") for file in replaced),
            *(_leftover(store, file.path, "no row belongs to what is in it") for file in orphans),
        ]
        if not is_dry:
            for path in partials + logs:
                path.unlink(missing_ok=True)
            store.folder.remove(replaced + orphans)
    return leftovers


def _leftover(store: Store, path: Path, why: str) -> Leftover:
    return Leftover(path.relative_to(store.root).as_posix(), why, size_of(path) or 0)
