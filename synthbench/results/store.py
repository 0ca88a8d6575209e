"""The store: a folder with rows of results, one per run, and learning curves.

A row is written either completely, with a checksum, or not at all.

::

    store.json                        {"format": 2, ...}
    runs/job-<hash>.parquet           the rows of one job (finished runs of one worker process)
    curves/job-<hash>.parquet         their learning curves, under the same name, written first
    compact/runs-<hash>.parquet       rows of many jobs, never changed again; curves-<hash>.parquet beside it
    verified/verified-<hash>.parquet  rows verified by running them again; a separate table, so that no row changes
    _tmp/  quarantine/                files being written; damaged files, moved there

File names contain the hash of the content, so no writer replaces another's file, and writers need no lock. If a run has
several rows, the row whose training finished last is used. Format 1 had one file per row,
``runs/run-<run_id>.parquet``; such files are still read.

A file of rows is *hash-named* if its name contains the hash of its bytes. Such a file was written from valid rows, and
no accident has changed it since. By default, readers of the file therefore do not compute the checksums of its rows.
Yet the name does not tell who wrote the file, so the values of its columns are checked. Before rows are copied to
another file or verified, their checksums are computed too.

Parts of this module, from top to bottom: the store; choosing rows and curves; validating rows; reading and writing one
Parquet file; dealing with the disk.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from jaxtyping import Bool, Int64

from synthbench import __version__
from synthbench.errors import StoreError, UsageError
from synthbench.results.migration import former, is_older, migrated, stated_name
from synthbench.results.schema import (
    CURVE_COLUMNS,
    CURVES,
    MAX_STRING_BYTES,
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

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 2
"""Version of the folder's layout, in ``store.json``."""

PACKAGED = "packaged"
"""The name of the store of the rows that come with synthbench."""

HELD = "held"
"""Name of a file in a folder of ``_tmp``; the process that uses the folder keeps this file open."""

FOLDERS = ("runs", "curves", "compact", "verified", "_tmp", "quarantine")
_LOCK = "_tmp/compact.lock"
_NAME = re.compile(r"(run|job|runs|curves|verified)-[0-9a-f]{16}\.parquet")

_STALE_S = 3600.0
"""Age in seconds above which a half-written file is taken to be from a killed writer; writing takes only seconds."""
_MAX_JSON_BYTES = 2**24
"""Size limit of ``store.json``, in bytes."""
_AT_ONCE = 1000
"""Number of tables collected before they are joined; an Arrow table of one row takes 30 times the row's memory."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Limits:
    """Limits on the amount read or written at once, since a store may come from a stranger or have a million rows."""

    file_bytes: int = 2**31
    """Size limit of a file, compressed and decompressed, since a few kilobytes of zstd can expand to terabytes."""
    written_rows: int = 20_000
    """Limit on the rows of one compact file; their curves go into another file. Both files together take up to 200
    MB."""
    batch_rows: int = 4096
    """Rows that are decoded at once, since a row takes far more memory in Python than in the file."""


LIMITS = Limits()


@dataclass(frozen=True)
class Quarantined:
    """A file, or a row in a file, that was left out when the store was read."""

    file: str
    """The file, as a path relative to the store."""
    reason: str
    is_moved: bool
    """True if the file was moved to ``quarantine/``; otherwise it is still where it was."""


def published() -> Path:
    """Find the store of packaged rows, which come with synthbench; in a checkout, it is the folder ``results``."""
    package = Path(__file__).parents[1]
    # In a checkout, ``published`` is a link to that folder, which some systems check out as a text file.
    return package / "published" if (package / "published").is_dir() else package.parent / "results"


class Store:
    """Rows and learning curves in a folder, opened with :meth:`open`."""

    def __init__(self, root: Path, *, is_writable: bool, limits: Limits = LIMITS) -> None:
        self.root = root
        self.is_writable = is_writable
        self.limits = limits
        self._left_out: dict[Quarantined, None] = {}

    @classmethod
    def open(cls, root: Path, *, create: bool, limits: Limits = LIMITS) -> "Store":
        """Open a store for reading. If ``create`` is True, open it for writing too, and create it if it does not exist.

        If ``create`` is False, neither opening nor reading the store changes anything on the disk.

        Args:
            root: Folder of the store. It may be a symbolic link, but the folders inside it may not.
            create: True to open the store for writing.
            limits: Limits on the amount of data that is read or written at once.

        Raises:
            StoreError: If the store does not exist and ``create`` is False, or if it is not writable and ``create`` is
                True. It is also raised if a folder in the store is a link, or if a newer synthbench made the store.
        """
        store = cls(root, is_writable=create, limits=limits)
        if not create and not root.is_dir():
            raise StoreError(f"no results store at {root}: {'not a folder' if root.exists() else 'no such folder'}")
        for name in (*FOLDERS, "logs", _LOCK):
            # Else care of the store would move and delete files elsewhere.
            if (root / name).is_symlink():
                raise StoreError(f"{root / name} is a link; the folders of a store are plain folders")
        version = store._format() if not create or (root / "store.json").exists() else 0
        if create:
            store._prepare(version)
        return store

    @property
    def quarantined(self) -> list[Quarantined]:
        """Rows and files left out so far, each listed once; code that prints a report should print this list too."""
        return list(self._left_out)

    # Reading

    def table(self, *, is_checked: bool = False, columns: Sequence[str] = RUNS.names) -> pa.Table:
        """Read the rows, one per run, in an order that does not depend on the files; null and NaN stay distinct.

        The column ``verified_by`` is filled from the store's own records of verification (rows confirmed by running
        them again), never from a file of rows.

        Args:
            is_checked: True to compare every row with its checksum. By default, this is skipped for files whose names
                contain the hash of their bytes; for the user's own store, the hash is enough.
            columns: Columns to return. The values of all other columns are checked too; this may be skipped in the
                store that comes with synthbench.

        Raises:
            StoreError: If a newer synthbench wrote one of the rows.
        """
        if "verified_by" not in columns:
            return rows_of(self, columns, "nothing" if is_checked else "checksums")
        return self._read(is_checked=is_checked).select(list(columns))

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Read some columns of the rows, one row per run, in the same order as :meth:`table`.

        This is faster than :meth:`table`: in files that are named by the hash of their bytes, only the needed columns
        are decoded. The other columns of these files are not checked.

        Raises:
            StoreError: If a newer synthbench wrote one of the rows.
        """
        if "verified_by" in names:  # never taken from a file of rows
            return self.table(columns=names)
        return rows_of(self, names, "values")

    def statuses(self) -> dict[str, str]:
        """Read the status of every run, as a dictionary with run ids as keys."""
        return dict(zip(*self.columns(("run_id", "status")).to_pydict().values(), strict=True))

    def find(self, run_ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Read the rows of some runs, with run ids as keys. In files without these runs, only some columns are read."""
        rows = newest(collected(parts_of(self, RUNS.names, "checksums", self._holding("run_id", run_ids))))
        return {row["run_id"]: row for row in only(rows, run_ids).to_pylist()}

    def loose(self, kind: str = "runs") -> list[Path]:
        """List the loose files of a kind (``runs`` or ``curves``): one per job, not yet merged into compact files."""
        return self._paths(kind)

    def _holding(self, column: str, values: Collection[str]) -> list[Path]:
        """List the files with a row that has one of the given values in a column."""
        parts = parts_of(self, (column,), "values") if values else iter(())
        return [self.root / name for name in only(collected(parts), values, column)["file"].unique().to_pylist()]

    def runs(self, *, is_checked: bool = False) -> "pd.DataFrame":
        """Read :meth:`table` as a pandas frame, converted by :func:`synthbench.results.schema.to_frame`."""
        return to_frame(self.table(is_checked=is_checked))

    def curves(self, run_ids: Iterable[str] | None = None) -> "pd.DataFrame":
        """Read the learning curves of the given runs (default: of all runs), in the same order as :meth:`runs`.

        A curve whose checksum differs from the one in its row is left out.
        """
        rows = rows_of(self, RUNS.names, self._skipped)
        return to_frame(curves_of(self, rows if run_ids is None else only(rows, run_ids))[0])

    def read(self, *, is_checked: bool = False) -> "tuple[pd.DataFrame, pd.DataFrame]":
        """Return the frames of :meth:`runs` and :meth:`curves`, but read the rows only once."""
        rows = self._read(is_checked=is_checked)
        return to_frame(rows), to_frame(curves_of(self, rows)[0])

    @property
    def _skipped(self) -> "Skipped":
        """Checks to skip for files named by the hash of their bytes: checksums, and for packaged rows also values."""
        return "values" if self.root.resolve() == published().resolve() else "checksums"

    def has_curves(self) -> bool:
        """Return whether the store has a file of learning curves; the content of the file is not checked."""
        return bool(self._paths("curves") or self._paths("compact", "curves"))

    def _read(self, *, is_checked: bool) -> pa.Table:
        """Read all columns of every row, with ``verified_by`` from the table of verifications."""
        rows = rows_of(self, RUNS.names, "nothing" if is_checked else self._skipped)
        said = verifications_of(self)
        names = zip(*(rows[name].to_pylist() for name in ("run_id", "row_sha256", "migrated_from")), strict=True)
        words = []
        for index, (run_id, checksum, migrated_from) in enumerate(names):
            before = stated_name(migrated_from)
            # A verification of the original also applies to the migrated row. Anyone can forge migrated_from, so it is
            # checked first.
            is_that_row = before in said and former(rows.slice(index, 1).to_pylist()[0]) is not None
            words.append(said.get((run_id, checksum)) or (said[before] if before and is_that_row else None))
        place = RUNS.get_field_index("verified_by")
        return rows.set_column(place, RUNS.field(place), pa.array(words, pa.string()))

    # Writing

    def write_all(self, runs: Iterable[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]) -> None:
        """Append finished runs to the store in one file; if the process is killed, either all runs are stored or none.

        Args:
            runs: Row and learning curve of each run. A row has all columns of ``RUNS`` except ``schema_version``,
                ``curve_sha256`` and ``row_sha256``, which the store adds. A curve is a list of points, possibly empty.
                A point has all columns of ``CURVES``; ``run_id`` may be left out.

        Raises:
            UsageError: If a key or a value does not fit the schema. Nothing is written in this case.
            StoreError: If the disk is full or the store cannot be written.
        """
        made = [_filled(row, curve) for row, curve in runs]
        if not made:
            return
        content = encode("runs", table_of(RUN_COLUMNS, [row for row, _ in made]))
        name = f"job-{_hash(content)}.parquet"
        # Curves first: a crash in between leaves no row without its curve.
        if any(points.num_rows for _, points in made):
            curves = pa.concat_tables([points for _, points in made])
            self.commit(encode("curves", curves), self.root / "curves" / name)
        self.commit(content, self.root / "runs" / name)

    def verify(self, verifications: Sequence[Mapping[str, Any]]) -> None:
        """Record that rows were confirmed by running their runs again.

        Args:
            verifications: One entry per confirmed row, with all columns of ``VERIFICATIONS``. An entry for a row that
                is not in the store has no effect.

        Raises:
            UsageError: If a key or a value does not fit the schema.
            StoreError: If the store cannot be written.
        """
        table = table_of(VERIFICATION_COLUMNS, verifications)
        for verification in verifications:
            check_values(VERIFICATION_COLUMNS, verification)
        if verifications:
            content = encode("verified", table)
            self.commit(content, self.root / "verified" / f"verified-{_hash(content)}.parquet")

    def import_rows(
        self, other: "Store", run_ids: Iterable[str] | None = None, checksums: Iterable[str] | None = None
    ) -> int:
        """Copy rows of another store into this one, unchanged and with their curves; return the number of rows copied.

        If this store already has a row of the same run, it keeps its own row. A row whose curve is lost is not copied,
        and is reported in ``other.quarantined``. Records of verification are not copied.

        Args:
            other: The store to copy from.
            run_ids: Ids of the runs whose rows are copied; None for all runs.
            checksums: Checksums of the rows to copy; None for all rows of these runs.

        Raises:
            StoreError: If this store cannot be written, or if another process is merging its files.
        """
        with self.alone():
            rows = rows_of(other) if run_ids is None else only(rows_of(other), run_ids)
            rows = rows if checksums is None else only(rows, checksums, "row_sha256")
            known = rows_of(self, ("run_id",))["run_id"].combine_chunks()
            return self.add_of(other, rows.filter(pc.invert(pc.is_in(rows["run_id"], known))))

    def add_of(self, other: "Store", rows: pa.Table) -> int:
        """Write rows of another store, except those whose curve is lost; return the number of rows written."""
        curves, lost = curves_of(other, rows)
        rows = rows.filter(pc.invert(pc.is_in(rows["run_id"], pa.array(lost, pa.string()))))
        self.add(rows, curves)
        return int(rows.num_rows)

    def add(self, rows: pa.Table, curves: pa.Table | None = None) -> None:
        """Write rows, which must be valid, and their curves into large files, and read each file back to check it.

        Raises:
            StoreError: If a file cannot be written, or if reading it back gives other rows. Files that are already
                complete stay.
        """
        for start in range(0, rows.num_rows, self.limits.written_rows):
            piece = rows.slice(start, self.limits.written_rows)
            points = only(_empty(CURVES) if curves is None else curves, piece["run_id"].to_pylist())
            for kind, table in (("curves", points), ("runs", piece)):  # curves first, as in write_all
                if not table.num_rows:
                    continue
                content = encode(kind, table)
                path = self.root / "compact" / f"{kind}-{_hash(content)}.parquet"
                self.commit(content, path)
                if [encode(kind, back) for back in self.look_at([path], File.table)] != [content]:
                    path.unlink(missing_ok=True)
                    raise StoreError(f"{path} did not read back as it was written; nothing was deleted")

    # Compaction: the committed store is append-only, so compact files stay as they are unless they are repaired

    def compact(self) -> int:
        """Make a few large files out of the files that single jobs have written; return how many files were deleted.

        Files of rows and files of curves both count. Large files from earlier calls stay as they are. A job's file is
        deleted only after the large file was read back and found correct.

        Raises:
            StoreError: If the store cannot be written, or if another process is merging its files.
        """
        with self.alone():
            for path in self.stale_partials():
                path.unlink(missing_ok=True)
            return self._rewrite(self.loose())

    def tidy(self, most_loose: int = 200) -> int:
        """Call :meth:`compact` if there are more than ``most_loose`` files of rows that single jobs have written.

        Return how many files were deleted. If merging fails, the error is ignored: the rows stay where they are, and a
        later command tries again.
        """
        if len(self.loose()) > most_loose:
            with self.writing(), contextlib.suppress(StoreError):
                return self.compact()
        return 0

    def take_out(self, damaged: Collection[Path], checksums: Collection[str]) -> None:
        """Move damaged files and the given rows to ``quarantine/``, and keep all other valid rows in the store.

        Args:
            damaged: Damaged files of rows.
            checksums: Checksums of the rows to move, which may be in undamaged files.

        Raises:
            StoreError: If the store cannot be written, or if another process is merging its files.
        """
        with self.alone():
            self._rewrite(sorted({*damaged, *self._holding("row_sha256", checksums)}), checksums)

    def _rewrite(self, paths: Sequence[Path], without: Collection[str] = ()) -> int:
        """Replace some files of rows by compact files, without the rows whose checksums are in ``without``.

        Return how many files of rows and curves were deleted.
        """
        others = [path for path in self._paths("compact", "runs") if path not in paths]
        known = collected(parts_of(self, ("row_sha256",), "values", others))
        known_or_without = pa.concat_arrays([*known["row_sha256"].chunks, pa.array(without, pa.string())])
        parts = parts_of(self, paths=paths)
        num_merged = 0
        while (group := collected(parts, self.limits.written_rows)).num_rows:
            numbers = newest_numbers(group)
            rows = plain(group.take(numbers), RUNS.names)
            if (taken_out := only(rows, without, "row_sha256")).num_rows:
                shelf = self.root / "quarantine"
                self.commit(encode("runs", taken_out), shelf / f"rows-without-curve.parquet.{time.time_ns()}")
            new = rows.filter(pc.invert(pc.is_in(rows["row_sha256"], known_or_without)))
            files = [self.root / name for name in group["file"].unique().to_pylist()]
            pairs = {path: self.root / "curves" / path.name for path in files if path.parent.name == "runs"}
            self.add(new, curves_of(self, new, pairs.values())[0])
            left = {self.root / name for name in only_there(group, numbers)["file"].unique().to_pylist()}
            faults = {self.root / report.file: report.reason for report in self.quarantined if not report.is_moved}
            for path in files:
                if path in faults:
                    self.quarantine(path, faults[path])
                elif path not in left:
                    num_merged += self.remove([path, *([pairs[path]] if path in pairs else [])])
        return num_merged

    # Locks, marks and refusals

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors of the operating system in the ``with`` block into a StoreError that states the free disk space.

        Raises:
            StoreError: If writing fails, or if the store was opened only for reading.
        """
        if not self.is_writable:
            raise StoreError(f"the results store {self.root} was opened for reading")
        try:
            yield
        except OSError as error:
            reason = "not a folder" if isinstance(error, FileExistsError) else error.strerror or str(error)
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
                reason += "; its disk has no file locks, name a folder on one that has"
            with contextlib.suppress(OSError):
                disk = os.statvfs(self.root)
                reason += f"; {disk.f_bavail * disk.f_frsize / 1e6:.0f} MB free"
                if disk.f_files and not disk.f_favail:
                    reason += ", but it holds as many files as it can"
            raise StoreError(f"cannot write to the results store {self.root}: {reason}") from error

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the store during the ``with`` block, so that no other process merges or deletes files.

        Raises:
            StoreError: If the store cannot be written, or if another process holds the lock.
        """
        with self.writing():
            try:
                with FileLock(self.root / _LOCK, timeout=0):
                    yield
            except Timeout:
                raise StoreError(f"another process is compacting the results store {self.root}") from None

    def _format(self) -> int:
        """Read the version of the layout from ``store.json``.

        Raises:
            StoreError: If the file is missing or unreadable, or a newer synthbench wrote it.
        """
        path = self.root / "store.json"
        try:
            version = json.loads(read_plain(path, _MAX_JSON_BYTES))["format"]
        except FileNotFoundError:
            raise StoreError(f"no results store at {self.root}: it has no store.json") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{path} cannot be read as a store's description; allowed: a JSON object with the key 'format'"
            ) from error
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise StoreError(f"{path} has the format {version!r}; allowed: 1 to {FORMAT}")
        if version > FORMAT:
            raise StoreError(f"{path} was written by a newer synthbench: format {version}, this one reads {FORMAT}")
        return version

    def _prepare(self, version: int) -> None:
        """Make missing folders, check that they can be written, and convert a store of an earlier format."""
        with self.writing():
            for folder in FOLDERS:
                make_writable(self.root / folder)
            # A disk without locks, or a lock of another user, should be found now, not after the first training.
            with contextlib.suppress(Timeout), FileLock(self.root / _LOCK, timeout=0):
                pass
        if version < FORMAT:  # else an earlier synthbench would take the files of jobs for damaged ones
            text = json.dumps({"format": FORMAT, "writer": f"synthbench {__version__}"}) + "\n"
            self.commit(text.encode(), self.root / "store.json")

    # Files that come and go

    def commit(self, content: bytes, target: Path) -> None:
        """Write ``content`` to the file ``target``, completely or not at all; after the call, it is safely on the disk.

        Raises:
            StoreError: If the disk is full or the store cannot be written.
        """
        # The suffix keeps half-written files away from every *.parquet pattern of other readers.
        partial = self.root / "_tmp" / f"{target.stem}.{uuid4().hex}.partial"
        with self.writing():
            try:
                with partial.open("xb") as file:
                    mark_in_use(file)
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, target)  # noqa: PTH105 -- the call that tests interrupt
            except OSError:
                with contextlib.suppress(OSError):
                    partial.unlink()
                raise
            _sync_folder(target.parent)

    def remove(self, paths: Iterable[Path]) -> int:
        """Delete files; return how many of them existed.

        Raises:
            StoreError: If the store cannot be written.
        """
        there = [path for path in paths if path.exists()]
        with self.writing():
            for path in there:
                path.unlink(missing_ok=True)
        return len(there)

    def quarantine(self, path: Path, reason: str) -> None:
        """Move a damaged file to ``quarantine/`` if the store is open for writing, and report it."""
        is_moved = False
        if self.is_writable:
            with contextlib.suppress(OSError):
                # The time at the end keeps earlier files, and keeps *.parquet patterns away.
                path.replace(self.root / "quarantine" / f"{path.parent.name}-{path.name}.{time.time_ns()}")
                is_moved = True
        self.report(path, reason, is_moved=is_moved)

    def report(self, path: Path, reason: str, *, is_moved: bool = False) -> None:
        """Record that a file, or something in it, was left out; repeated reports are recorded only once."""
        self._left_out[Quarantined(path.relative_to(self.root).as_posix(), reason, is_moved)] = None

    def _paths(self, folder: str, kind: str = "") -> list[Path]:
        """List the Parquet files of a folder whose names begin with ``kind``.

        Links and files with names that the store does not use are reported, not listed.

        Raises:
            StoreError: If the folder cannot be read.
        """
        try:
            with os.scandir(self.root / folder) as entries:
                listed = sorted(
                    (entry.name, entry.is_file(follow_symlinks=False))
                    for entry in entries
                    if entry.name.endswith(".parquet")
                )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"cannot read {self.root / folder}: {error.strerror}") from error
        paths = []
        for name, is_plain in listed:
            path = self.root / folder / name
            if not is_plain:
                self.report(path, "it is a link or no plain file")
            elif not _NAME.fullmatch(name):
                self.report(path, "its name is not that of a store file")
            elif name.startswith(kind):
                paths.append(path)
        return paths

    def files_of(self, kind: str) -> Iterator[Path]:
        """Yield all files of a kind (``runs``, ``curves`` or ``verified``): files of single jobs, then merged files.

        Files that appear meanwhile are yielded at the end. So no row is missed if another process merges files at the
        same time: it writes a merged file before it deletes the files of single jobs.
        """
        seen = set[Path]()
        while new := [path for path in (*self._paths(kind), *self._paths("compact", kind)) if path not in seen]:
            yield from new
            seen.update(new)

    def look_at(self, paths: Iterable[Path], look: Callable[["File"], Found]) -> Iterator[Found]:
        """Open each file, call ``look`` on it and yield the result; quarantine damaged files and skip missing files."""
        for path in paths:
            try:
                if (file := open_file(path, self.limits)) is None:
                    continue
                found = look(file)
            except Damaged as damage:
                self.quarantine(path, str(damage))
            else:
                yield found

    def stale_partials(self) -> list[Path]:
        """Find unfinished files of killed processes: over an hour old, and not marked as in use by any process."""
        folder = self.root / "_tmp"
        marks = [mark for mark in folder.glob(f"*/{HELD}") if not mark.parent.is_symlink() and _is_left(mark)]
        held = [path for mark in marks for path in sorted(mark.parent.rglob("*")) if path.is_file()]
        return [*filter(_is_left, sorted(folder.glob("*.partial"))), *held]

    def stale_logs(self) -> list[Path]:
        """Find logs of jobs killed before they printed anything: empty, over an hour old, and not marked as in use."""
        logs = filter(_is_left, sorted((self.root / "logs").glob("*.log")))
        return [path for path in logs if (status := status_of(path)) and not status.st_size]


def _filled(row: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], pa.Table]:
    """Add to a row the columns that the store itself sets, and convert the row's curve to a table.

    Raises:
        UsageError: If a key or a value does not fit the schema.
    """
    name = row.get("run_id")
    if not isinstance(name, str) or not _RUN_ID.fullmatch(name):
        raise UsageError(f"run_id is {name!r}; allowed: 16 hex digits")
    points = table_of(CURVE_COLUMNS, [{"run_id": name, **point} for point in curve])
    columns = points.to_pydict()
    if any(owner != name for owner in columns["run_id"]):
        raise UsageError(f"the curve of run {name} has points of another run")
    for point in points.to_pylist():
        check_values(CURVE_COLUMNS, point)
    own = {"schema_version": SCHEMA_VERSION, "curve_sha256": curve_sha256(columns) if curve else None, "row_sha256": ""}
    # Through a table, which gives numbers the type that they are hashed with.
    filled: dict[str, Any] = table_of(RUN_COLUMNS, [{**row, **own}]).to_pylist()[0]
    filled["row_sha256"] = row_sha256(filled)
    check_values(RUN_COLUMNS, filled)
    return filled, points


# ----- Choosing one row per run -----


_ORDER = ("suite", "task", "mech", "seed", "run_id")
"""Columns by which reports sort their rows."""
Skipped = Literal["nothing", "checksums", "values"]
"""Checks skipped for hash-named files: ``nothing``, ``checksums``, or checksums and ``values``."""
KEYS = ("run_id", "finished_at", "row_sha256")
"""Columns that decide which row of a run is used."""
_DISTINCT = ("run_id", "row_sha256")
"""Text columns that are never dictionary-encoded in memory, since almost all their values differ."""


def rows_of(store: Store, names: Sequence[str] = RUNS.names, skipped: Skipped = "nothing") -> pa.Table:
    """Read one row per run, sorted by suite, task, mechanism, seed and run id; see :func:`parts_of` for arguments."""
    return newest(collected(parts_of(store, names, skipped)), names)


def parts_of(
    store: Store, names: Sequence[str] = RUNS.names, skipped: Skipped = "nothing", paths: Iterable[Path] | None = None
) -> Iterator[pa.Table]:
    """Yield one table per file with its valid rows, migrated to the present schema; report damaged files and rows.

    Args:
        store: The store to read.
        names: Columns to read. Other columns are always added: those in ``KEYS``, those by which reports sort, and
            three new ones. These are ``is_migrated`` (migration replaced the run id), ``is_result`` (the status is
            ``ok``, or the row is not migrated) and ``file`` (path in the store). Most text columns are
            dictionary-encoded.
        skipped: Checks to skip in files whose names contain the hash of their bytes. With ``values``, only the needed
            columns of these files are decoded.
        paths: Files to read; None for all files of rows.
    """
    held = list(dict.fromkeys((*names, *KEYS, *_ORDER)))
    needed = list(dict.fromkeys((*held, "status", "migrated_from", "schema_version")))

    def look(file: File) -> pa.Table:
        if file.is_hash_named and skipped == "values":
            table = file.table(needed, is_folded=True)
            _refuse_unreadable(table, file)
            if not is_older(table):
                return _folded(table, held, file.path)
        tables, faults, names = list[pa.Table](), list[str](), list[str]()
        for batch in file.batches():
            _refuse_unreadable(batch, file)
            names = names or batch["run_id"].slice(0, 1).to_pylist()
            wrong = _faults(batch, is_hash_named=file.is_hash_named and skipped != "nothing")
            holding = batch.take(pa.array(np.setdiff1d(np.arange(batch.num_rows), list(wrong)))) if wrong else batch
            tables.append(migrated(holding).select(needed))
            faults += wrong.values()
        table = pa.concat_tables(tables)
        if faults and not table.num_rows:
            raise Damaged(faults[0])
        if not faults and not file.is_hash_named and [file.path.stem] != [f"run-{name}" for name in names]:
            # Its rows are valid, but it may have replaced another file.
            faults = ["its name is not the hash of its content"]
        for fault in faults:
            store.report(file.path, fault)
        return _folded(table, held, file.path)

    return store.look_at(store.files_of("runs") if paths is None else paths, look)


def collected(parts: Iterator[pa.Table], most_rows: int | None = None) -> pa.Table:
    """Take tables from an iterator and join them into one table, until it has at least ``most_rows`` rows.

    The remaining tables stay in the iterator. If ``most_rows`` is None, all tables are taken.
    """
    tables, num_rows = list[pa.Table](), 0
    for part in parts:
        tables.append(part)
        if len(tables) == _AT_ONCE:
            tables = [pa.concat_tables(tables).combine_chunks()]
        num_rows += part.num_rows
        if most_rows is not None and num_rows >= most_rows:
            break
    return pa.concat_tables(tables) if tables else _folded(_empty(RUNS), RUNS.names, Path())


def _folded(table: pa.Table, names: Sequence[str], path: Path) -> pa.Table:
    """Dictionary-encode a file's text columns to save memory; add columns ``is_migrated``, ``is_result``, ``file``."""
    columns = {
        name: table[name].dictionary_encode()
        if pa.types.is_string(table[name].type) and name not in _DISTINCT
        else table[name]
        for name in names
    }
    columns["is_migrated"] = pc.is_valid(table["migrated_from"])
    is_ok = pc.match_like(table["status"].cast(pa.string()), "ok")  # a comparison with a text would import pandas
    columns["is_result"] = pc.or_(is_ok, pc.invert(columns["is_migrated"]))
    name = pa.array(["/".join(path.parts[-2:])])
    columns["file"] = pa.DictionaryArray.from_arrays(np.zeros(table.num_rows, dtype=np.int32), name)
    return pa.table(columns)


def plain(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Select some columns and convert them from dictionary encoding to the types of ``RUNS``."""
    schema = pa.schema([RUNS.field(name) for name in names])
    return table.select(list(names)).cast(schema).combine_chunks()


def newest(table: pa.Table, names: Sequence[str] = RUNS.names) -> pa.Table:
    """Select some columns of one row per run, chosen and ordered by :func:`newest_numbers`."""
    return plain(table.select(list(names)).take(newest_numbers(table)), names)


def newest_numbers(table: pa.Table) -> pa.Array:
    """Choose, for each run, the row that finished last; return the numbers (from 0) of these rows in report order.

    If two rows finished at the same time, the row with the larger checksum is chosen. After migration to another
    schema, rows of formerly different runs may have the same run id. So a migrated row of a failed run is never
    preferred to a row with status ``ok``.
    """
    by_age = _sorted(table, ("run_id", "is_result", "finished_at", "row_sha256"))
    names = table["run_id"].take(by_age).combine_chunks()
    is_followed = pc.equal(names[:-1], names[1:])
    last = pa.concat_arrays([by_age[:-1].filter(pc.invert(is_followed)), by_age[-1:]])
    return last.take(_sorted(plain(table.select(_ORDER).take(last), _ORDER), _ORDER))


def only_there(rows: pa.Table, numbers: pa.Array) -> pa.Table:
    """Select the migrated rows that are not in use, because another row of the same run is used instead.

    A migrated row is one whose run id was replaced for a newer schema. A row also counts as in use if an identical row
    (with the same checksum) from another file is in use. ``numbers`` are the numbers (from 0) of the rows in use, one
    per run id.
    """
    counting = rows["row_sha256"].take(numbers).combine_chunks()
    return rows.filter(pc.and_(rows["is_migrated"], pc.invert(pc.is_in(rows["row_sha256"], counting))))


def _sorted(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return the row numbers (from 0) in the order of the values in the given columns."""
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])


def only(rows: pa.Table, values: Iterable[str], column: str = "run_id") -> pa.Table:
    """Select the rows whose value in a column, by default the run id, is among the given values."""
    return rows.filter(pc.is_in(rows[column], pa.array(set(values), pa.string())))


def verifications_of(store: Store) -> dict[tuple[str, str], str]:
    """Describe who last confirmed each row by running it again; the keys are pairs of run id and checksum."""

    def look(file: File) -> list[dict[str, Any]]:
        table = file.table()
        _refuse_unreadable(table, file)
        entries: list[dict[str, Any]] = table.to_pylist()
        for entry in entries:
            if refusal := _refusal(VERIFICATION_COLUMNS, entry):
                raise Damaged(refusal)
        return entries

    said = itertools.chain.from_iterable(store.look_at(store.files_of("verified"), look))
    return {
        (entry["run_id"], entry["row_sha256"]): (
            f"{entry['verified_by']} ({entry['verdict']}, synthbench {entry['synthbench_version']}, "
            f"{entry['verified_at']:%Y-%m-%d})"
        )
        for entry in sorted(said, key=lambda entry: (entry["verified_at"], entry["verified_by"]))
    }


# ----- The curves of rows -----


def curves_of(store: Store, rows: pa.Table, paths: Iterable[Path] | None = None) -> tuple[pa.Table, set[str]]:
    """Read the learning curves of some rows; return the points of the curves, and the ids of runs whose curve is lost.

    Args:
        store: The store to read.
        rows: Rows with the columns ``run_id``, ``migrated_from`` and ``curve_sha256``.
        paths: Files to search; None for all files of curves. Lost curves are reported in ``store.quarantined`` only if
            ``paths`` is None.
    """
    wanted: dict[tuple[str, str], int] = {}
    columns = (rows[name].to_pylist() for name in ("run_id", "migrated_from", "curve_sha256"))
    for number, (name, migrated_from, checksum) in enumerate(zip(*columns, strict=True)):
        if checksum is not None:
            before = stated_name(migrated_from)
            wanted |= {(name, checksum): number} | ({(before[0], checksum): number} if before else {})
    run_ids = {name for name, _ in wanted}
    is_found = np.zeros(rows.num_rows, dtype=bool)

    def look(file: File) -> tuple[pa.Table, Int64[np.ndarray, " points"]]:
        points = only(file.table(), run_ids).combine_chunks()
        _refuse_unreadable(points, file)
        starts = _curve_starts(points)
        lengths = np.diff(starts, append=points.num_rows)
        is_suspect = suspects(CURVE_COLUMNS, points)
        numbers = np.full(len(starts), -1)
        for curve, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            if is_suspect[start : start + length].any():
                continue
            columns = points.slice(start, length).to_pydict()
            number = wanted.get((columns["run_id"][0], curve_sha256(columns)))
            if number is not None and not is_found[number]:  # the first of several copies
                numbers[curve], is_found[number] = number, True
        of_points = np.repeat(numbers, lengths)
        return points.filter(pa.array(of_points >= 0)), of_points[of_points >= 0]

    found = list(store.look_at(store.files_of("curves") if paths is None else paths, look))
    of_rows = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for _, numbers in found)])
    order = np.argsort(of_rows, kind="stable")
    names = rows["run_id"].take(pa.array(of_rows[order]))
    points = pa.concat_tables([_empty(CURVES), *(table for table, _ in found)]).take(pa.array(order))
    points = points.set_column(0, CURVES.field(0), names)
    lost = {name for (name, _), number in wanted.items() if not is_found[number]}
    for name in sorted(lost) if paths is None else ():
        path = store.root / "curves" / f"run-{name}.parquet"
        store.report(path, "the curve of this run is missing or does not belong to its row")
    return points.combine_chunks(), lost


def _curve_starts(points: pa.Table) -> Int64[np.ndarray, " curves"]:
    """Find the index (from 0) of each learning curve's first point; the points of one curve are adjacent."""
    if not points.num_rows:
        return np.zeros(0, dtype=np.int64)
    ends = pc.run_end_encode(points["run_id"].combine_chunks()).run_ends.to_numpy()
    return np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1].astype(np.int64)])


# ----- Validating rows: a quick check of many rows at once selects those that are checked one by one -----

_RUN_ID = re.compile(r"[0-9a-f]{16}")
_SCHEMA = re.compile(rb"[1-9][0-9]{0,8}")
# The years 1 to 9999 in microseconds, the range of datetime.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def _faults(table: pa.Table, *, is_hash_named: bool) -> dict[int, str]:
    """Explain why rows of a readable table cannot be trusted; the keys of the result are the numbers of these rows.

    Args:
        table: Rows to check.
        is_hash_named: Whether to trust the file's name, which contains the hash of its bytes. If so, only rows
            that fail a quick check are checked one by one.
    """
    numbers = np.arange(table.num_rows)
    if is_hash_named:
        are_names = pc.match_substring_regex(table["run_id"], f"^{_RUN_ID.pattern}$").to_numpy()
        numbers = np.flatnonzero(suspects(RUN_COLUMNS, table) | ~are_names.astype(bool))
    faults = map(_fault_of, table.take(pa.array(numbers)).to_pylist())
    return {number: fault for number, fault in zip(numbers.tolist(), faults, strict=True) if fault is not None}


def _fault_of(row: Mapping[str, Any]) -> str | None:
    """Explain why a row cannot be trusted; None if it can."""
    if refusal := _refusal(RUN_COLUMNS, row):
        return refusal
    name = row["run_id"]
    if row_sha256(row) != row["row_sha256"]:
        return f"the checksum of run {name[:16]!r} is wrong"
    return None if _RUN_ID.fullmatch(name) else f"run_id is {name[:40]!r}; allowed: 16 hex digits"


def suspects(columns: Iterable[Column], table: pa.Table) -> Bool[np.ndarray, " rows"]:
    """Mark rows of a table that may be invalid: all rows that ``check_values`` refuses, and perhaps some valid rows."""
    is_suspect = np.zeros(table.num_rows, dtype=bool)
    for column in columns:
        values = table[column.name].combine_chunks()
        if not column.is_nullable and values.null_count:
            is_suspect |= values.is_null().to_numpy(zero_copy_only=False)
        if column.type == "string" and not column.choices:  # only its length counts
            is_suspect |= pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False) > MAX_STRING_BYTES
        elif pa.types.is_string(values.type):
            distinct = values.dictionary_encode()
            refused = [
                index
                for index, word in enumerate(distinct.dictionary.to_pylist())
                if _refusal((column,), {column.name: word})
            ]
            if refused:
                is_suspect |= np.isin(distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False), refused)
    return is_suspect


def _refusal(columns: Iterable[Column], row: Mapping[str, Any]) -> str | None:
    try:
        check_values(columns, row)
    except UsageError as error:
        return str(error)
    return None


def _refuse_unreadable(table: pa.Table, file: "File") -> None:
    """Refuse a table of rows or curve points if Python cannot represent a value, such as text that is not UTF-8.

    Raises:
        Damaged: If there is such a value, or a time outside the years 1 to 9999. It is also raised if a row states a
            schema version below 1, or one that is newer than both this synthbench and the version in the footer.
        StoreError: If a row states a schema version newer than this synthbench, and the footer states none.
    """
    try:
        table.validate(full=True)
    except pa.ArrowException:
        raise Damaged("it holds no readable row") from None
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            ends = pc.min_max(column.cast(pa.int64())).as_py()  # a comparison with a number would import pandas
            if ends["min"] is not None and not _FIRST_US <= ends["min"] <= ends["max"] <= _LAST_US:
                raise Damaged("it holds no readable row")
    if "schema_version" in table.schema.names and len(versions := table["schema_version"].drop_null()):
        oldest, newest = pc.min_max(versions).as_py().values()
        if newest > SCHEMA_VERSION and _stated_version(file.parquet.metadata) is None:
            raise _of_newer(file.path, newest)
        if newest > SCHEMA_VERSION:
            raise Damaged("footer and rows disagree about the schema")
        if oldest < 1:
            raise Damaged(f"a row states schema {oldest}; allowed: 1 to {SCHEMA_VERSION}")


# ----- One Parquet file, read as hostile input: perhaps no Parquet, too large, other columns, a newer schema -----


class Damaged(Exception):  # noqa: N818 -- not an error: the reader goes on without the file
    """Exception for a file that cannot be trusted; the message says why."""


@dataclass(frozen=True)
class File:
    """An opened Parquet file: footer (metadata) and column types are checked already, but not yet the values."""

    path: Path
    is_hash_named: bool
    """True if the name of the file contains the hash of its bytes."""
    schema: pa.Schema
    """The present schema; columns that the writer did not know yet are read as null."""
    parquet: pq.ParquetFile
    limits: Limits

    def batches(self, names: Sequence[str] | None = None, *, is_folded: bool = False) -> Iterator[pa.Table]:
        """Yield the rows of the file, a few thousand at a time, with the columns ``names`` (None: all columns).

        If ``is_folded`` is True, most text columns stay dictionary-encoded, which saves memory.

        Raises:
            Damaged: If part of the file is missing or cannot be decoded, or if the decoded rows exceed the allowed
                number of bytes.
        """
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        left, missing = self.limits.file_bytes, self.parquet.metadata.num_rows
        present = set(self.parquet.metadata.schema.names)
        with _decoding():
            columns = [name for name in schema.names if name in present]
            for batch in self.parquet.iter_batches(self.limits.batch_rows, columns=columns, use_threads=False):
                arrays = []
                for field in schema:
                    if field.name not in present:
                        arrays.append(pa.nulls(batch.num_rows, field.type))
                        continue
                    column = batch.column(field.name)
                    if pa.types.is_dictionary(column.type):
                        left -= pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
                        if left < 0:
                            raise Damaged(f"it unfolds to more than {self.limits.file_bytes} bytes")
                    held = column.type
                    if is_folded and pa.types.is_dictionary(held) and field.name not in _DISTINCT:
                        held = held.value_type
                    arrays.append(column if held == field.type else column.cast(field.type))
                missing -= batch.num_rows
                fields = [field.with_type(array.type) for field, array in zip(schema, arrays, strict=True)]
                yield pa.Table.from_arrays(arrays, schema=pa.schema(fields))
            if missing:
                raise Damaged(f"{missing} of its rows are missing")

    def table(self, names: Sequence[str] | None = None, *, is_folded: bool = False) -> pa.Table:
        """Decode all rows into one table; see :meth:`batches`."""
        return pa.concat_tables(self.batches(names, is_folded=is_folded))


def encode(kind: str, table: pa.Table) -> bytes:
    """Encode a table as the bytes of a Parquet file; equal tables give equal bytes."""
    is_small = table.num_rows == 1
    written_by = {"schema": kind, "schema_version": str(SCHEMA_VERSION), "writer": __version__}
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        # Each page has one value: zstd would make it longer, and reading twice as slow.
        compression="none" if is_small else "zstd",
        use_dictionary=not is_small,
        write_statistics=not is_small,
        write_page_checksum=True,
        # The Parquet types suffice for our columns; a copy of the Arrow schema would double the size of a one-row file.
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({f"synthbench.{name}": value for name, value in written_by.items()})
    return bytes(sink.getvalue())


def open_file(path: Path, limits: Limits) -> File | None:
    """Open a file of a store without decoding its rows; return None if the file no longer exists.

    Raises:
        Damaged: If the file is not readable as Parquet, or if its size or its columns are not allowed.
        StoreError: If a newer synthbench wrote the file, or if reading fails for a reason that may be temporary.
    """
    try:
        content = read_plain(path, limits.file_bytes)
    except FileNotFoundError:
        return None
    except ValueError as problem:
        raise Damaged(str(problem)) from None
    except OSError as error:
        # EIO means a broken sector. Any other error may be temporary, and does not prove that the file is damaged.
        if error.errno == errno.EIO:
            raise Damaged(f"it cannot be read: {error.strerror}") from error
        raise StoreError(f"cannot read {path}: {error.strerror}; nothing was moved") from error
    schema = _schema_of(path)
    with _decoding():
        metadata = pq.read_metadata(pa.BufferReader(content))
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        size = max(sum(group.total_byte_size for group in groups), 8 * metadata.num_rows * metadata.num_columns)
        if size > limits.file_bytes:
            raise Damaged(f"it claims {metadata.num_rows} rows, {size} bytes")
        leaves = map(metadata.schema.column, range(metadata.num_columns))
        parquet = pq.ParquetFile(
            pa.BufferReader(content),
            metadata=metadata,
            # A text stored once may be used in a million rows: it is expanded only after its total size was checked.
            read_dictionary=[leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"],
            page_checksum_verification=True,
        )
        present = metadata.schema.to_arrow_schema()
    is_hash_named = path.stem.endswith("-" + _hash(content))
    if schema is RUNS:
        _refuse_newer(path, metadata, is_hash_named=is_hash_named)
    _check_columns(present, schema)
    if not metadata.num_rows:
        raise Damaged("it holds nothing")
    return File(path, is_hash_named, schema, parquet, limits)


def _hash(content: bytes) -> str:
    """Hash the content of a file to the 16 hex digits that its name contains."""
    return hashlib.sha256(content).hexdigest()[:16]


def _schema_of(path: Path) -> pa.Schema:
    """Return the schema that a file must have, as its folder and name tell: of rows, curves or verifications."""
    if path.parent.name == "verified":
        return VERIFICATIONS
    return RUNS if path.parent.name == "runs" or path.name.startswith("runs-") else CURVES


@contextlib.contextmanager
def _decoding() -> Iterator[None]:
    """Turn all errors by which Arrow refuses a Parquet file into :class:`Damaged`."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise Damaged(f"not a readable Parquet file: {str(error).strip()[:200]}") from error


def _check_columns(present: pa.Schema, schema: pa.Schema) -> None:
    """Refuse columns that are unknown, occur twice, are missing or have another type.

    Raises:
        Damaged: If there is such a column.
    """
    types = {field.name: field.type for field in present}
    if unknown := types.keys() - set(schema.names):
        raise Damaged("it has unknown columns: " + ", ".join(sorted(unknown))[:200])
    if len(types) != len(present):
        raise Damaged("a column occurs twice")
    for field in schema:
        if field.name not in types and not field.nullable:
            raise Damaged(f"it lacks the column {field.name}")
        stated = types.get(field.name, field.type)
        held = stated.value_type if pa.types.is_dictionary(stated) else stated
        if not _may_hold(held, field.type):
            raise Damaged(f"column {field.name} is {held}, not {field.type}")


def _may_hold(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column of type ``wanted`` may be stored as type ``held``, as pandas does.

    The later cast to ``wanted`` checks the values.
    """
    is_text = pa.types.is_large_string(held) or pa.types.is_string_view(held)
    is_number = pa.types.is_integer(held) or pa.types.is_floating(held)
    return bool(
        held == wanted
        or pa.types.is_null(held)
        or (is_text and pa.types.is_string(wanted))
        or (is_number and (pa.types.is_integer(wanted) or pa.types.is_floating(wanted)))
        or (pa.types.is_timestamp(held) and pa.types.is_timestamp(wanted))
    )


def _refuse_newer(path: Path, metadata: pq.FileMetaData, *, is_hash_named: bool) -> None:
    """Refuse a file of a newer schema, since leaving out its rows could make results wrong without notice.

    Raises:
        StoreError: If the footer (metadata) states a newer schema version, and the file is intact. A file counts as
            intact if its name contains the hash of its bytes, or if it has an unknown column.
        Damaged: If the footer's schema version is not a positive integer, or is newer and the file may be damaged.
    """
    stated = _stated_version(metadata)
    if stated is None:
        return  # other writers drop it; the rows state it too
    if not _SCHEMA.fullmatch(stated):
        raise Damaged("it does not say which schema it has")
    version = int(stated)
    if version > SCHEMA_VERSION and (is_hash_named or not set(metadata.schema.names) <= set(RUNS.names)):
        raise _of_newer(path, version)
    if version > SCHEMA_VERSION:
        raise Damaged("footer and columns disagree about the schema")


def _stated_version(metadata: pq.FileMetaData) -> bytes | None:
    """Return the schema version that the footer states; None if another writer dropped it."""
    stated: bytes | None = (metadata.metadata or {}).get(b"synthbench.schema_version")
    return stated


def _of_newer(path: Path, version: int) -> StoreError:
    return StoreError(
        f"{path} was written by a newer synthbench: schema {version}, this one reads up to {SCHEMA_VERSION}"
    )


def _empty(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([], schema)  # not schema.empty_table(), which imports pandas


# ----- The disk -----


def read_plain(path: Path, max_bytes: int) -> bytes:
    """Read a plain file from an untrusted source; links are not followed, and a pipe cannot block the call.

    Raises:
        OSError: If the file cannot be read, or if it is a link.
        ValueError: If it is not a plain file (for example, a pipe or a device), or if it has more than ``max_bytes``
            bytes.
    """
    with _opened(path) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no plain file")
        if status.st_size > max_bytes:
            raise ValueError(f"it has {status.st_size} bytes")
        return file.read(max_bytes)


def make_writable(folder: Path) -> None:
    """Make a folder if it does not exist, and test that files can be written there.

    Raises:
        OSError: If no file can be written there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Permission bits do not bind root and say nothing about a read-only mount: only writing tells.
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(b"probe")


def is_old(path: Path) -> bool:
    """Return whether a file is over an hour old."""
    status = status_of(path)
    return status is not None and time.time() - status.st_mtime > _STALE_S


def status_of(path: Path) -> os.stat_result | None:
    """Return the size, times and mode of a file; None if it no longer exists."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def mark_in_use(file: BinaryIO) -> None:
    """Lock an open file, so that ``store gc`` does not delete it as a remnant of a killed process."""
    # The kernel releases the lock when the process ends, however it ends. On network disks without locks, only the age
    # of a file decides.
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_left(path: Path) -> bool:
    """Return whether a file is over an hour old, and no process marks it as in use by a lock."""
    if not is_old(path):
        return False
    try:
        with _opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def _sync_folder(folder: Path) -> None:
    # Without this the rename itself may be lost in a power failure.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
