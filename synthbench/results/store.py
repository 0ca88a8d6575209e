"""A folder of rows: one file a run, written so that a row is either complete and checksummed or absent.

::

    store.json                        {"format": 1, ...}
    runs/run-<run_id>.parquet         one row; its presence says that the run is finished
    curves/run-<run_id>.parquet       its learning curve, written first
    compact/runs-<hash>.parquet       many rows in one file; curves-<hash>.parquet beside it
    verified/verified-<hash>.parquet  which rows somebody ran again; a side table, so that no row changes
    _tmp/  quarantine/                files being written; files that could not be trusted

Writers need no lock: the file's name is the run's identity, and a rename is atomic.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from synthbench import __version__
from synthbench.errors import StoreError, UsageError
from synthbench.results.schema import (
    CURVE_COLUMNS,
    CURVES,
    RUN_COLUMNS,
    RUNS,
    SCHEMA_VERSION,
    VERIFICATION_COLUMNS,
    VERIFICATIONS,
    Column,
    check_values,
    curve_sha256,
    row_sha256,
    table_of,
    to_frame,
)

FORMAT = 1
"""Version of the folder's layout, in ``store.json``."""

RUN_ID = re.compile(r"[0-9a-f]{16}")
_SMALL = re.compile(r"run-([0-9a-f]{16})\.parquet")
_COMPACT = re.compile(r"(runs|curves)-[0-9a-f]{16}\.parquet")

# A store may come from a stranger, and a few kilobytes of zstd can claim to hold terabytes.
_MAX_ROWS = 5_000_000
_MAX_SMALL_BYTES = 2**25
_MAX_COMPACT_BYTES = 2**31

_ORDER = ("suite", "task", "mech", "seed", "run_id")
_STALE_S = 3600.0


@dataclass(frozen=True)
class Quarantined:
    """A file, or a row in it, that a reader left out."""

    file: str
    """Relative to the store."""
    reason: str
    is_moved: bool
    """Now in ``quarantine/``; otherwise it still lies where it was."""


class _Damaged(Exception):  # noqa: N818 -- not an error: the reader goes on without the file
    """A file that cannot be trusted; its message says why."""


@dataclass(frozen=True)
class _File:
    """A file that could be decoded; nothing is known yet of the values in it."""

    path: Path
    inode: int
    table: pa.Table


@dataclass(frozen=True)
class _Rows:
    """The rows of a file that hold, and why others do not."""

    file: _File
    rows: list[dict[str, Any]]
    faults: list[str]


@dataclass(frozen=True)
class _Curve:
    """The points of one run."""

    file: _File
    table: pa.Table
    sha256: str


class RowState(NamedTuple):
    """How a run ended; ``skill`` is None without a score."""

    status: str
    skill: float | None


class Store:
    """Rows and learning curves in a folder; get one from :meth:`open`."""

    def __init__(self, root: Path, *, is_writable: bool) -> None:
        self.root = root
        self.is_writable = is_writable
        self.quarantined: list[Quarantined] = []
        """What readers of this object left out so far; whoever prints a report prints this too."""

    @classmethod
    def open(cls, root: Path, *, create: bool) -> "Store":
        """Open a store; with ``create`` also for writing, making the folder if there is none.

        Opening or reading without ``create`` changes nothing on the disk.

        Raises:
            StoreError: If there is no store, it cannot be written, or a newer synthbench made it.
        """
        store = cls(root, is_writable=create)
        if not create and not root.is_dir():
            raise StoreError(f"no results store at {root}: {'not a folder' if root.exists() else 'no such folder'}")
        if not create or (root / "store.json").exists():
            store._check_format()
        if create:
            store._prepare()
        return store

    def ids(self) -> set[str]:
        """The runs that are finished, whatever their status; a listing of ``runs/``, so cheap.

        A damaged file counts until :meth:`statuses`, :meth:`table` or :meth:`runs` has opened it.
        """
        # Small files first: compaction writes before it deletes, so no row is missed between the two listings.
        finished = set(self._small("runs"))
        return finished.union(row["run_id"] for row in _newest(self._verified(self._compact_files("runs"))))

    def states(self) -> dict[str, RowState]:
        """How every readable row ended, by run_id."""
        return {row["run_id"]: RowState(row["status"], row["skill"]) for row in self._rows()}

    def statuses(self) -> dict[str, str]:
        """The status of every readable row, by run_id."""
        return {run_id: state.status for run_id, state in self.states().items()}

    def write(self, row: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]) -> None:
        """Append a finished run, or replace the row of the same ``run_id``; safe to kill at any time.

        Args:
            row: Every column of ``RUNS``; those in ``FILLED`` may be absent and are replaced.
            curve: Points with every column of ``CURVES``; ``run_id`` may be absent. May be empty.

        Raises:
            UsageError: If a key or a value does not fit the schema.
            StoreError: If the disk is full or the store cannot be written.
        """
        self._require_writable()
        name = row.get("run_id")
        if not isinstance(name, str) or not RUN_ID.fullmatch(name):
            raise UsageError(f"run_id is {name!r}; allowed: 16 hex digits")
        points = table_of(CURVE_COLUMNS, [{"run_id": name, **point} for point in curve])
        columns = points.to_pydict()
        if any(owner != name for owner in columns["run_id"]):
            raise UsageError(f"the curve of run {name} has points of another run")
        for point in points.to_pylist():
            check_values(CURVE_COLUMNS, point)
        filled = {
            **row,
            "schema_version": SCHEMA_VERSION,
            "curve_sha256": curve_sha256(columns) if curve else None,
            "row_sha256": "",
        }
        stored = table_of(RUN_COLUMNS, [filled]).to_pylist()[0]
        stored["row_sha256"] = row_sha256(stored)
        check_values(RUN_COLUMNS, stored)
        if curve:
            self._commit(_encode("curves", points), self.root / "curves" / f"run-{name}.parquet")
        self._commit(_encode("runs", table_of(RUN_COLUMNS, [stored])), self.root / "runs" / f"run-{name}.parquet")

    def table(self) -> pa.Table:
        """Every readable row once, in an order that does not depend on files; null and NaN stay apart.

        ``verified_by`` is what the store's own side table says, whatever a row's file says of itself.

        Raises:
            StoreError: If a newer synthbench wrote one of the rows.
        """
        verified = self._verifications()
        rows = [{**row, "verified_by": verified.get((row["run_id"], row["row_sha256"]))} for row in self._rows()]
        return pa.Table.from_pylist(rows, schema=RUNS)

    def runs(self) -> pd.DataFrame:
        """:meth:`table` for pandas: see :func:`synthbench.results.schema.to_frame`."""
        return to_frame(self.table())

    def curves(self, run_ids: Iterable[str] | None = None) -> pd.DataFrame:
        """The learning curves of some runs (None: of all), in the order of :meth:`runs`.

        A curve counts only if it is the one that its row was written with.
        """
        wanted = None if run_ids is None else set(run_ids)
        rows = [row for row in self._rows() if wanted is None or row["run_id"] in wanted]
        return to_frame(_stack(CURVES, [curve.table for curve in self._curves_of(rows)]))

    def verify(self, verifications: Sequence[Mapping[str, Any]]) -> None:
        """Record that rows were run again and came out the same.

        Args:
            verifications: Every column of ``VERIFICATIONS``, a row each. Rows that the store has not stay unverified.

        Raises:
            UsageError: If a key or a value does not fit the schema.
            StoreError: If the store cannot be written.
        """
        self._require_writable()
        table = table_of(VERIFICATION_COLUMNS, verifications)
        for verification in verifications:
            check_values(VERIFICATION_COLUMNS, verification)
        if verifications:
            content = _encode("verified", table)
            name = f"verified-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
            self._commit(content, self.root / "verified" / name)

    def adopt(self, other: "Store", run_ids: Iterable[str] | None = None) -> int:
        """Add rows of another store (None: all) with their curves, unchanged; return how many are new to this one.

        What the other store says of verifications stays there: it is its own word.

        Raises:
            StoreError: If this store cannot be written, or another process is compacting it.
        """
        wanted = None if run_ids is None else set(run_ids)
        with self._alone():
            known = {row["row_sha256"] for row in self._rows()}
            rows = [row for row in other._rows() if row["row_sha256"] not in known]  # noqa: SLF001 - the same class
            rows = [row for row in rows if wanted is None or row["run_id"] in wanted]
            curves = other._curves_of(rows)  # noqa: SLF001 - the same class
            self._write_compact("curves", _stack(CURVES, [curve.table for curve in curves]))
            self._write_compact("runs", pa.Table.from_pylist(rows, schema=RUNS))
        return len(rows)

    def compact(self) -> int:
        """Merge all files into one of runs and one of curves; return how many small files were merged.

        Raises:
            StoreError: If the store cannot be written or another process is compacting it.
        """
        with self._alone():
            return self._compact()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process write or delete compact files meanwhile.

        Raises:
            StoreError: If the store cannot be written, or another process is at it.
        """
        self._require_writable()
        try:
            with FileLock(self.root / "_tmp" / "compact.lock", timeout=0):
                yield
        except Timeout:
            raise StoreError(f"another process is compacting the results store {self.root}") from None
        except OSError as error:
            raise self._refusal(error) from error

    def _require_writable(self) -> None:
        if not self.is_writable:
            raise StoreError(f"the results store {self.root} was opened for reading")

    def _prepare(self) -> None:
        try:
            for folder in ("_tmp", "runs", "curves", "compact", "verified"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
                # Permission bits do not bind root and say nothing about a read-only mount: only writing tells.
                with tempfile.TemporaryFile(dir=self.root / folder) as probe:
                    probe.write(b"probe")
        except OSError as error:
            raise self._refusal(error) from error
        if not (self.root / "store.json").exists():
            text = json.dumps({"format": FORMAT, "writer": f"synthbench {__version__}"}) + "\n"
            self._commit(text.encode(), self.root / "store.json")

    def _check_format(self) -> None:
        path = self.root / "store.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["format"]
        except FileNotFoundError:
            raise StoreError(f"no results store at {self.root}: it has no store.json") from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{path} cannot be read: {error!r}") from error
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise StoreError(f"{path} has the format {found!r}; allowed: {FORMAT}")
        if found > FORMAT:
            raise StoreError(f"{path} was written by a newer synthbench: format {found}, this one reads {FORMAT}")

    def _commit(self, content: bytes, target: Path) -> None:
        """Make ``content`` appear under ``target`` as a whole or not at all."""
        # The suffix keeps half-written files away from every *.parquet pattern of other readers.
        partial = self.root / "_tmp" / f"{target.stem}.{uuid4().hex}.partial"
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, target)  # noqa: PTH105 -- the call that tests interrupt
            _sync_folder(target.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        try:
            free = f"; {shutil.disk_usage(self.root).free / 1e6:.0f} MB free"
        except OSError:
            free = ""
        return StoreError(f"cannot write to the results store {self.root}: {reason}{free}")

    def _small(self, kind: str) -> dict[str, Path]:
        """The one-run files of a kind by run_id."""
        found = {}
        for path in _parquet_files(self.root / kind):
            if name := _SMALL.fullmatch(path.name):
                found[name[1]] = path
            else:
                self._set_aside(path, "its name is not run-<run_id>.parquet")
        return found

    def _compact_paths(self, *kinds: str) -> list[Path]:
        found = []
        for path in _parquet_files(self.root / "compact"):
            if not (name := _COMPACT.fullmatch(path.name)):
                self._set_aside(path, "its name is not runs-<hash>.parquet or curves-<hash>.parquet")
            elif name[1] in kinds:
                found.append(path)
        return found

    def _small_files(self, kind: str) -> list[_File]:
        # One after the other: Arrow holds the interpreter's lock while it decodes, threads were measured slower.
        paths = list(self._small(kind).values())
        return self._decoded(paths, map(_read, paths))

    def _compact_files(self, kind: str) -> list[_File]:
        while True:
            paths = self._compact_paths(kind)
            outcomes = [_read(path) for path in paths]
            # A compaction that ended meanwhile has put the rows of a vanished file into a new one.
            if None not in outcomes:
                return self._decoded(paths, outcomes)

    def _decoded(self, paths: Iterable[Path], outcomes: Iterable[_File | _Damaged | None]) -> list[_File]:
        files = []
        for path, outcome in zip(paths, outcomes, strict=True):
            if isinstance(outcome, _Damaged):
                self._set_aside(path, str(outcome))
            elif outcome is not None:
                files.append(outcome)
        return files

    def _verified(self, files: Sequence[_File]) -> list[_Rows]:
        verified = []
        for file, rows in zip(files, _listed([file.table for file in files]), strict=True):
            faults = [_fault_of(row, file.path) for row in rows] if rows else ["it holds no readable row"]
            found = [fault for fault in faults if fault is not None]
            if found and (file.path.parent.name == "runs" or not rows):
                self._set_aside(file.path, found[0])
                continue
            for fault in found:
                self._report(file.path, fault, is_moved=False)
            good = [row for row, fault in zip(rows, faults, strict=True) if fault is None]
            verified.append(_Rows(file, good, found))
        return verified

    def _set_aside(self, path: Path, reason: str) -> None:
        """Move a bad file to ``quarantine/`` if the store is open for writing, and report it."""
        is_moved = False
        if self.is_writable:
            shelf = self.root / "quarantine"
            with contextlib.suppress(OSError):
                shelf.mkdir(exist_ok=True)
                # The time at the end keeps earlier exhibits, and keeps *.parquet patterns away.
                path.replace(shelf / f"{path.parent.name}-{path.name}.{time.time_ns()}")
                is_moved = True
        self._report(path, reason, is_moved=is_moved)

    def _report(self, path: Path, reason: str, *, is_moved: bool) -> None:
        report = Quarantined(path.relative_to(self.root).as_posix(), reason, is_moved)
        if report not in self.quarantined:
            self.quarantined.append(report)

    def _row_files(self) -> list[_Rows]:
        return self._verified(self._small_files("runs") + self._compact_files("runs"))

    def _rows(self) -> list[dict[str, Any]]:
        return _newest(self._row_files())

    def _verifications(self) -> dict[tuple[str, str], str]:
        """Who says that a row was run again, by its run_id and checksum; the latest word counts."""
        paths = _parquet_files(self.root / "verified")
        said: list[dict[str, Any]] = []
        for file in self._decoded(paths, map(_read, paths)):
            try:
                entries = file.table.to_pylist()
                for entry in entries:
                    check_values(VERIFICATION_COLUMNS, entry)
            except (pa.ArrowException, ValueError, OverflowError, UsageError) as fault:
                self._set_aside(file.path, f"a value cannot be read: {fault}")
                continue
            said += entries
        return {
            (entry["run_id"], entry["row_sha256"]): (
                f"{entry['verified_by']} ({entry['verdict']}, synthbench {entry['synthbench_version']}, "
                f"{entry['verified_at']:%Y-%m-%d})"
            )
            for entry in sorted(said, key=lambda entry: (entry["verified_at"], entry["verified_by"]))
        }

    def _curves_of(self, rows: Sequence[Mapping[str, Any]]) -> list[_Curve]:
        """The curve of each row that has one; a row whose curve is lost is reported."""
        found: dict[tuple[str, str], _Curve] = {}
        for file in self._small_files("curves") + self._compact_files("curves"):
            for name, curve in _split(file):
                found.setdefault((name, curve.sha256), curve)
        curves = []
        for row in rows:
            if row["curve_sha256"] is None:
                continue
            match = found.get((row["run_id"], row["curve_sha256"]))
            if match is None:
                path = self.root / "curves" / f"run-{row['run_id']}.parquet"
                self._report(path, "the curve of this run is missing or does not belong to its row", is_moved=False)
            else:
                curves.append(match)
        return curves

    def _compact(self) -> int:
        self._remove_stale_partials()
        sources = self._row_files()
        rows = _newest(sources)
        curves = self._curves_of(rows)
        old = self._compact_paths("runs", "curves")
        # Curves first, as in write: a crash in between leaves rows that still find theirs.
        kept = {
            self._write_compact("curves", _stack(CURVES, [curve.table for curve in curves])),
            self._write_compact("runs", pa.Table.from_pylist(rows, schema=RUNS)),
        }
        merged = {file.path: file for file in [source.file for source in sources] + [curve.file for curve in curves]}
        num_merged = sum(_remove(file) for file in merged.values() if file.path not in old)
        faulty = {source.file.path: source.faults[0] for source in sources if source.faults}
        for path in old:
            if path in faulty:
                self._set_aside(path, faulty[path])
            elif path not in kept:
                path.unlink(missing_ok=True)
        return num_merged

    def _write_compact(self, kind: str, table: pa.Table) -> Path | None:
        """Write one compact file and read it back; None if there is nothing to write."""
        if table.num_rows == 0:
            return None
        content = _encode(kind, table)
        path = self.root / "compact" / f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
        if path.exists() and path.read_bytes() == content:
            return path
        self._commit(content, path)
        outcome = _read(path)
        if not isinstance(outcome, _File) or not _same(outcome.table, table):
            path.unlink(missing_ok=True)
            raise StoreError(f"{path} did not read back as it was written; nothing was deleted")
        return path

    def _remove_stale_partials(self) -> None:
        # A writer is done with its partial file within seconds; one this old was killed.
        for path in (self.root / "_tmp").glob("*.partial"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _STALE_S:
                    path.unlink()


def _parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder in the order of their names; a folder that is missing has none."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".parquet") and entry.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {error.strerror}") from error
    return [folder / name for name in sorted(names)]


def _encode(kind: str, table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    is_small = table.num_rows == 1
    with pq.ParquetWriter(
        sink,
        table.schema,
        # Pages of one value: zstd makes them longer and reading twice as slow.
        compression="none" if is_small else "zstd",
        use_dictionary=not is_small,
        write_statistics=not is_small,
        write_page_checksum=True,
        # The Parquet types say all that our columns need; Arrow's copy of the schema doubles a one-row file.
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {
                "synthbench.schema": kind,
                "synthbench.schema_version": str(SCHEMA_VERSION),
                "synthbench.writer": __version__,
            }
        )
    return bytes(sink.getvalue())


def _decode(content: bytes, max_rows: int, max_bytes: int) -> tuple[pa.Table, dict[bytes, bytes]]:
    """The table and the footer's metadata of a Parquet file; every way in which Arrow can refuse becomes one."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        if file.metadata.num_rows > max_rows or size > max_bytes:
            raise _Damaged(f"it claims {file.metadata.num_rows} rows, {size} bytes")
        return file.read(use_threads=False), dict(file.metadata.metadata or {})
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise _Damaged(f"not a readable Parquet file: {str(error).strip()[:200]}") from error


def _aligned(table: pa.Table, columns: Sequence[Column], schema: pa.Schema) -> pa.Table:
    """The table under the present schema; columns that its writer did not know yet are null."""
    if table.schema.equals(schema):
        return table
    present = set(table.column_names)
    if unknown := present - set(schema.names):
        raise _Damaged("it has unknown columns: " + ", ".join(sorted(unknown))[:200])
    if len(present) != table.num_columns:
        raise _Damaged("a column occurs twice")
    arrays = []
    for column in columns:
        if column.name not in present:
            if not column.is_nullable:
                raise _Damaged(f"it lacks the column {column.name}")
            arrays.append(pa.nulls(table.num_rows, column.arrow_type))
        elif table[column.name].type != column.arrow_type:
            raise _Damaged(f"column {column.name} is {table[column.name].type}, not {column.arrow_type}")
        else:
            arrays.append(table[column.name])
    return pa.Table.from_arrays(arrays, schema=schema)


def _load(path: Path) -> _File:
    is_small = path.parent.name != "compact"
    max_bytes = _MAX_SMALL_BYTES if is_small else _MAX_COMPACT_BYTES
    content, inode = _content(path, max_bytes)
    is_runs = path.parent.name == "runs" or path.name.startswith("runs-")
    max_rows = 1 if is_small and is_runs else _MAX_ROWS
    table, footer = _decode(content, max_rows, max_bytes)
    if path.parent.name == "verified":
        return _File(path, inode, _aligned(table, VERIFICATION_COLUMNS, VERIFICATIONS))
    if not is_runs:
        return _File(path, inode, _aligned(table, CURVE_COLUMNS, CURVES))
    _refuse_newer(path, table, footer)
    return _File(path, inode, _aligned(table, RUN_COLUMNS, RUNS))


def _read(path: Path) -> "_File | _Damaged | None":
    """What a file holds, why it cannot be trusted, or None if it is gone."""
    try:
        return _load(path)
    except FileNotFoundError:
        return None
    except _Damaged as damage:
        return damage


def _content(path: Path, max_bytes: int) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > max_bytes:
                raise _Damaged(f"it has {status.st_size} bytes")
            return file.read(), status.st_ino
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _Damaged(f"it cannot be read: {error.strerror}") from error


def _refuse_newer(path: Path, table: pa.Table, footer: Mapping[bytes, bytes]) -> None:
    """Stop at a newer file: to leave its rows out would be a wrong answer, not a careful one.

    Raises:
        StoreError: If footer and rows agree that a newer synthbench wrote them.
    """
    try:
        in_footer = int(footer[b"synthbench.schema_version"])
        in_rows = max(table["schema_version"].to_pylist(), default=in_footer)
        is_newer = in_rows > SCHEMA_VERSION
    except (ValueError, KeyError, TypeError):
        raise _Damaged("it does not say which schema it has") from None
    # One of the two alone is a flipped bit.
    if (in_footer > SCHEMA_VERSION) != is_newer:
        raise _Damaged("footer and rows disagree about the schema")
    if is_newer:
        raise StoreError(
            f"{path} was written by a newer synthbench: schema {in_rows}, this one reads up to {SCHEMA_VERSION}"
        )


def _listed(tables: Sequence[pa.Table]) -> list[list[dict[str, Any]]]:
    """The rows of each table; none where a value cannot be read."""
    try:
        # One call for all: a call a table takes ten times as long for tables of one row.
        rows = iter(_stack(RUNS, tables).to_pylist())
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


def _newest(files: Iterable[_Rows]) -> list[dict[str, Any]]:
    """Each run once: the row that finished last, by the hash where two finished together."""
    newest: dict[str, dict[str, Any]] = {}
    for file in files:
        for row in file.rows:
            rival = newest.setdefault(row["run_id"], row)
            if (row["finished_at"], row["row_sha256"]) > (rival["finished_at"], rival["row_sha256"]):
                newest[row["run_id"]] = row
    return sorted(newest.values(), key=lambda row: tuple(row[name] for name in _ORDER))


def _split(file: _File) -> Iterable[tuple[str, _Curve]]:
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
        yield name, _Curve(file, file.table.slice(start, stop - start), curve_sha256(part))
        start = stop


def _remove(file: _File) -> bool:
    """Delete a merged file, unless a writer has replaced it since it was read."""
    try:
        is_ours = file.path.stat().st_ino == file.inode
        if is_ours:
            file.path.unlink()
    except FileNotFoundError:
        return False
    return is_ours


def _stack(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()


def _same(one: pa.Table, other: pa.Table) -> bool:
    """Equality that counts NaN as equal to NaN, unlike Arrow's."""
    return repr(one.to_pydict()) == repr(other.to_pydict())


def _sync_folder(folder: Path) -> None:
    # Without this the rename itself may be lost in a power failure.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
