"""What counts of the files in a store: the rows that hold, each run once; the curve of each; who ran a row again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from synthbench.errors import UsageError
from synthbench.results.files import File, stack
from synthbench.results.folder import RUN_ID, Folder
from synthbench.results.schema import (
    RUN_COLUMNS,
    RUNS,
    VERIFICATION_COLUMNS,
    check_values,
    curve_sha256,
    row_sha256,
)

_ORDER = ("suite", "task", "mech", "seed", "run_id")


@dataclass(frozen=True)
class Rows:
    """The rows of a file that hold, and why others do not."""

    file: File
    rows: list[dict[str, Any]]
    faults: list[str]


@dataclass(frozen=True)
class Curve:
    """The points of one run."""

    file: File
    table: pa.Table
    sha256: str


def rows_of(folder: Folder) -> list[dict[str, Any]]:
    """Each run of a store once."""
    return newest(row_files(folder))


def row_files(folder: Folder) -> list[Rows]:
    """The rows of every file; what does not hold is set aside or reported."""
    return verified(folder, folder.small_files("runs") + folder.compact_files("runs"))


def verified(folder: Folder, files: Sequence[File]) -> list[Rows]:
    """The rows of some files that hold."""
    kept = []
    for file, rows in zip(files, _listed([file.table for file in files]), strict=True):
        faults = [_fault_of(row, file.path) for row in rows] if rows else ["it holds no readable row"]
        found = [fault for fault in faults if fault is not None]
        if found and (file.path.parent.name == "runs" or not rows):
            folder.set_aside(file.path, found[0])
            continue
        for fault in found:
            folder.report(file.path, fault, is_moved=False)
        good = [row for row, fault in zip(rows, faults, strict=True) if fault is None]
        kept.append(Rows(file, good, found))
    return kept


def newest(files: Iterable[Rows]) -> list[dict[str, Any]]:
    """Each run once: the row that finished last, by the hash where two finished together."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        for row in file.rows:
            rival = found.setdefault(row["run_id"], row)
            if (row["finished_at"], row["row_sha256"]) > (rival["finished_at"], rival["row_sha256"]):
                found[row["run_id"]] = row
    return sorted(found.values(), key=lambda row: tuple(row[name] for name in _ORDER))


def curves_of(folder: Folder, rows: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """The curve of each row that has one; a row whose curve is lost is reported."""
    found: dict[tuple[str, str], Curve] = {}
    for file in folder.small_files("curves") + folder.compact_files("curves"):
        for name, curve in _split(file):
            found.setdefault((name, curve.sha256), curve)
    curves = []
    for row in rows:
        if row["curve_sha256"] is None:
            continue
        match = found.get((row["run_id"], row["curve_sha256"]))
        if match is None:
            path = folder.root / "curves" / f"run-{row['run_id']}.parquet"
            folder.report(path, "the curve of this run is missing or does not belong to its row", is_moved=False)
        else:
            curves.append(match)
    return curves


def verifications_of(folder: Folder) -> dict[tuple[str, str], str]:
    """Who says that a row was run again, by its run_id and checksum; the latest word counts."""
    said: list[dict[str, Any]] = []
    for file in folder.verified_files():
        try:
            entries = file.table.to_pylist()
            for entry in entries:
                check_values(VERIFICATION_COLUMNS, entry)
        except (pa.ArrowException, ValueError, OverflowError, UsageError) as fault:
            folder.set_aside(file.path, f"a value cannot be read: {fault}")
            continue
        said += entries
    return {
        (entry["run_id"], entry["row_sha256"]): (
            f"{entry['verified_by']} ({entry['verdict']}, synthbench {entry['synthbench_version']}, "
            f"{entry['verified_at']:%Y-%m-%d})"
        )
        for entry in sorted(said, key=lambda entry: (entry["verified_at"], entry["verified_by"]))
    }


def _listed(tables: Sequence[pa.Table]) -> list[list[dict[str, Any]]]:
    """The rows of each table; none where a value cannot be read."""
    try:
        # One call for all: a call a table takes ten times as long for tables of one row.
        rows = iter(stack(RUNS, tables).to_pylist())
    except (pa.ArrowException, ValueError, OverflowError):
        return [[]] if len(tables) == 1 else [_listed([table])[0] for table in tables]
    return [list(islice(rows, table.num_rows)) for table in tables]


def _fault_of(row: Mapping[str, Any], path: Path) -> str | None:
    """Why a row in a file cannot be trusted; None if it can."""
    try:
        check_values(RUN_COLUMNS, row)
    except UsageError as error:
        return str(error)
    name = row["run_id"]
    if row_sha256(row) != row["row_sha256"]:
        return f"the checksum of run {name[:16]!r} is wrong"
    if not RUN_ID.fullmatch(name):
        return f"run_id is {name[:40]!r}; allowed: 16 hex digits"
    if path.parent.name == "runs" and path.name != f"run-{name}.parquet":
        return f"it holds run {name}"
    return None


def _split(file: File) -> Iterable[tuple[str, Curve]]:
    """The curves in a file; a run's points lie together."""
    try:
        columns = file.table.to_pydict()
    except (pa.ArrowException, ValueError, OverflowError):
        # Text that is not UTF-8: no hash can match, and the row reports that its curve is lost.
        return
    start = 0
    for name, points in groupby(columns["run_id"]):
        stop = start + sum(1 for _ in points)
        part = {column: values[start:stop] for column, values in columns.items()}
        yield name, Curve(file, file.table.slice(start, stop - start), curve_sha256(part))
        start = stop
