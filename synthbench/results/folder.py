"""The folder of a store: its layout, how a file is written whole, and where a bad one goes.

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
import errno
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar
from uuid import uuid4

import pyarrow as pa
from filelock import FileLock, Timeout

from synthbench import __version__
from synthbench.errors import StoreError
from synthbench.results import files
from synthbench.results.files import Damaged, File, Identity, Origin, parquet_files

FORMAT = 1
"""Version of the folder's layout, in ``store.json``."""

RUN_ID = re.compile(r"[0-9a-f]{16}")
_SMALL = re.compile(r"run-([0-9a-f]{16})\.parquet")
_COMPACT = re.compile(r"(runs|curves)-[0-9a-f]{16}\.parquet")

STALE_S = 3600.0
"""A writer is done with its files within seconds; what it left half done this long ago, in seconds, was killed."""

REMOVED_AT_ONCE = 64
"""Files; writers wait meanwhile."""

WRITERS = 8
"""Threads that write files at once."""

SMALL_AT_ONCE = 1000
"""Files of one run whose tables are in memory together."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Quarantined:
    """A file, or a row in it, that a reader left out."""

    file: str
    """Relative to the store."""
    reason: str
    is_moved: bool
    """Now in ``quarantine/``; otherwise it still lies where it was."""


HELD = "held"
"""File in a folder of ``_tmp`` that the process whose files lie there has open."""


class Folder:
    """Files of a store by kind; knows nothing of what the rows in them say."""

    def __init__(self, root: Path, *, is_writable: bool) -> None:
        self.root = root
        self.is_writable = is_writable
        self._left_out: dict[Quarantined, None] = {}
        self._write_lock = FileLock(root / "_tmp" / "write.lock")

    @property
    def quarantined(self) -> list[Quarantined]:
        """What readers left out so far, each once."""
        return list(self._left_out)

    def check_format(self) -> None:
        """Look at ``store.json``.

        Raises:
            StoreError: If there is none, or a newer synthbench wrote it.
        """
        path = self.root / "store.json"
        try:
            version = json.loads(path.read_text(encoding="utf-8"))["format"]
        except FileNotFoundError:
            raise StoreError(f"no results store at {self.root}: it has no store.json") from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{path} cannot be read: {error!r}") from error
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise StoreError(f"{path} has the format {version!r}; allowed: {FORMAT}")
        if version > FORMAT:
            raise StoreError(f"{path} was written by a newer synthbench: format {version}, this one reads {FORMAT}")

    def prepare(self) -> None:
        """Make what is missing for writing.

        Raises:
            StoreError: If that cannot be done.
        """
        try:
            for folder in ("_tmp", "runs", "curves", "compact", "verified"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
                # Permission bits do not bind root and say nothing about a read-only mount: only writing tells.
                with tempfile.TemporaryFile(dir=self.root / folder) as probe:
                    probe.write(b"probe")
            # A disk without locks, or a lock of another user, is better met now than after the first training.
            with contextlib.suppress(Timeout), FileLock(self.root / "_tmp" / "write.lock", timeout=0):
                pass
        except OSError as error:
            raise self._refusal(error) from error
        if not (self.root / "store.json").exists():
            text = json.dumps({"format": FORMAT, "writer": f"synthbench {__version__}"}) + "\n"
            self.commit(text.encode(), self.root / "store.json")

    def require_writable(self) -> None:
        """Raise a StoreError if the store was opened for reading."""
        if not self.is_writable:
            raise StoreError(f"the results store {self.root} was opened for reading")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other process write or delete compact files meanwhile.

        Raises:
            StoreError: If the store cannot be written, or another process is at it.
        """
        self.require_writable()
        try:
            with FileLock(self.root / "_tmp" / "compact.lock", timeout=0):
                yield
        except Timeout:
            raise StoreError(f"another process is compacting the results store {self.root}") from None
        except OSError as error:
            raise self._refusal(error) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Wait until no other process writes or removes a run, and let none do so meanwhile; may be nested.

        Raises:
            StoreError: If the store cannot be written.
        """
        try:
            with self._write_lock:
                yield
        except OSError as error:
            raise self._refusal(error) from error

    def commit(self, content: bytes, target: Path) -> None:
        """Make ``content`` appear under ``target`` as a whole or not at all.

        Raises:
            StoreError: If the disk is full or the store cannot be written.
        """
        self.commit_all({target: content})

    def commit_all(self, contents: Mapping[Path, bytes]) -> None:
        """Make each content appear under its target as a whole or not at all; they are on the disk when this returns.

        Raises:
            StoreError: If the disk is full or the store cannot be written; then some may be there.
        """
        try:
            if len(contents) > 1:
                # A disk makes many files durable in little more time than one, if it hears of them together.
                with ThreadPoolExecutor(min(len(contents), WRITERS)) as threads:
                    list(threads.map(self._put, contents.values(), contents))
            else:
                for target, content in contents.items():
                    self._put(content, target)
            for folder in {target.parent for target in contents}:
                _sync_folder(folder)
        except OSError as error:
            raise self._refusal(error) from error

    def _put(self, content: bytes, target: Path) -> None:
        # The suffix keeps half-written files away from every *.parquet pattern of other readers.
        partial = self.root / "_tmp" / f"{target.stem}.{uuid4().hex}.partial"
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

    def commit_compact(self, kind: str, table: pa.Table) -> Path | None:
        """Write one compact file and read it back; None if there is nothing to write.

        Raises:
            StoreError: If it cannot be written, or does not read back as it was.
        """
        if table.num_rows == 0:
            return None
        content = files.encode(kind, table)
        path = self.root / "compact" / f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
        if path.exists() and path.read_bytes() == content:
            return path
        self.commit(content, path)
        outcome = files.read(path)
        if not isinstance(outcome, File) or not _reads_as(outcome, table):
            path.unlink(missing_ok=True)
            raise StoreError(f"{path} did not read back as it was written; nothing was deleted")
        return path

    def commit_rows(self, rows: pa.Table, curves: pa.Table) -> set[Path]:
        """Write rows and their curves into compact files; the files.

        Raises:
            StoreError: If one cannot be written, or does not read back as it was.
        """
        # Curves first, as in Store.write: a crash in between leaves no row without its curve.
        return self.commit_pieces("curves", curves) | self.commit_pieces("runs", rows)

    def commit_pieces(self, kind: str, table: pa.Table) -> set[Path]:
        """Write rows or curves into as many compact files as they need; the files.

        Raises:
            StoreError: If one cannot be written, or does not read back as it was.
        """
        written = [self.commit_compact(kind, piece) for piece in files.pieces(kind, table)]
        return {path for path in written if path is not None}

    def small(self, kind: str) -> dict[str, Path]:
        """The one-run files of a kind, ``runs`` or ``curves``, by run_id."""
        paths = {}
        for path in parquet_files(self.root / kind):
            if name := _SMALL.fullmatch(path.name):
                paths[name[1]] = path
            else:
                self.set_aside(path, "its name is not run-<run_id>.parquet")
        return paths

    def small_files(self, kind: str, run_ids: Container[str] | None = None) -> Iterator[list[tuple[Origin, pa.Table]]]:
        """What the one-run files of a kind hold, of all runs or some; those that cannot be decoded are set aside.

        A thousand at a time: an Arrow table of one row takes thirty times the memory of the row.
        """
        # One after the other: Arrow holds the interpreter's lock while it decodes, threads were measured slower.
        paths = [path for name, path in self.small(kind).items() if run_ids is None or name in run_ids]
        for start in range(0, len(paths), SMALL_AT_ONCE):
            yield self._tables(paths[start : start + SMALL_AT_ONCE])

    def compact_paths(self, *kinds: str) -> list[Path]:
        """The files of many runs of some kinds."""
        paths = []
        for path in parquet_files(self.root / "compact"):
            if not (name := _COMPACT.fullmatch(path.name)):
                self.set_aside(path, "its name is not runs-<hash>.parquet or curves-<hash>.parquet")
            elif name[1] in kinds:
                paths.append(path)
        return paths

    def of_compact_files(self, kind: str, look: Callable[[File], Found]) -> list[Found]:
        """What a look at each file of many runs finds; those that cannot be decoded are set aside.

        Args:
            kind: ``runs`` or ``curves``.
            look: May see a file twice. It raises ``Damaged`` where a part cannot be decoded.
        """
        while True:
            found = []
            for path in self.compact_paths(kind):
                outcome = files.read(path)
                if outcome is None:  # a compaction that ended meanwhile has put its rows into a new file
                    break
                try:
                    found.append(look(_undamaged(outcome)))
                except Damaged as damage:
                    self.set_aside(path, str(damage), outcome.identity)
            else:
                return found

    def verified_files(self) -> list[tuple[Origin, pa.Table]]:
        """What the side table of verifications holds; files that cannot be decoded are set aside."""
        return self._tables(parquet_files(self.root / "verified"))

    def set_aside(self, path: Path, reason: str, seen: Identity | None = None) -> None:
        """Move a bad file to ``quarantine/`` if the store is open for writing, and report it.

        Args:
            path: The file.
            reason: What is wrong with it.
            seen: The file in which that was found: one that a writer has put in its place since stays. None where the
                name alone is wrong.
        """
        is_moved = False
        if self.is_writable:
            shelf = self.root / "quarantine"
            with contextlib.suppress(OSError, StoreError), self.writing():
                if seen is not None and files.identity_of(path) not in (seen, None):
                    return
                shelf.mkdir(exist_ok=True)
                # The time at the end keeps earlier exhibits, and keeps *.parquet patterns away.
                path.replace(shelf / f"{path.parent.name}-{path.name}.{time.time_ns()}")
                is_moved = True
        self.report(path, reason, is_moved=is_moved)

    def remove(self, unneeded: Sequence[Origin]) -> int:
        """Delete files, unless a writer has replaced them since they were read; how many were deleted.

        Raises:
            StoreError: If the store cannot be written.
        """
        num_removed = 0
        for start in range(0, len(unneeded), REMOVED_AT_ONCE):
            with self.writing():  # no writer replaces a file between the look at it and its end
                for file in unneeded[start : start + REMOVED_AT_ONCE]:
                    if files.identity_of(file.path) == file.identity:
                        file.path.unlink(missing_ok=True)
                        num_removed += 1
        return num_removed

    def exhibit(self, content: bytes, name: str) -> None:
        """Keep something in ``quarantine/``.

        Raises:
            StoreError: If it cannot be written.
        """
        shelf = self.root / "quarantine"
        shelf.mkdir(exist_ok=True)
        self.commit(content, shelf / f"{name}.parquet.{time.time_ns()}")

    def report(self, path: Path, reason: str, *, is_moved: bool) -> None:
        """Note once that a file or something in it was left out."""
        self._left_out[Quarantined(path.relative_to(self.root).as_posix(), reason, is_moved)] = None

    def partials(self) -> list[Path]:
        """Files that are being written, or that killed writers left half written."""
        return sorted((self.root / "_tmp").glob("*.partial"))

    def stale_partials(self) -> list[Path]:
        """What killed writers left half written: it is old, and no process has it open."""
        marks = (self.root / "_tmp").glob(f"*/{HELD}")
        folders = [mark.parent for mark in marks if is_old(mark) and not _is_in_use(mark)]
        left = [path for folder in folders for path in sorted(folder.iterdir())]
        return [*(path for path in self.partials() if is_old(path) and not _is_in_use(path)), *left]

    def stale_logs(self) -> list[Path]:
        """Logs of jobs that were killed before they printed anything: empty, old, and no process has them open."""
        logs = sorted((self.root / "logs").glob("*.log"))
        return [path for path in logs if size_of(path) == 0 and is_old(path) and not _is_in_use(path)]

    def _tables(self, paths: Iterable[Path]) -> list[tuple[Origin, pa.Table]]:
        tables = []
        for path in paths:
            if (outcome := files.read(path)) is None:
                continue
            try:
                file = _undamaged(outcome)
                tables.append((file.origin, file.table()))
            except Damaged as damage:
                self.set_aside(path, str(damage), outcome.identity)
        return tables

    def _refusal(self, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
            reason += "; its disk has no file locks, name a folder on one that has"
        try:
            disk = os.statvfs(self.root)
        except OSError:
            free = ""
        else:
            free = f"; {disk.f_bavail * disk.f_frsize / 1e6:.0f} MB free"
            if disk.f_files and not disk.f_favail:
                free += ", but it holds as many files as it can"
        return StoreError(f"cannot write to the results store {self.root}: {reason}{free}")


def _undamaged(outcome: File | Damaged) -> File:
    if isinstance(outcome, Damaged):
        raise outcome
    return outcome


def _reads_as(file: File, table: pa.Table) -> bool:
    try:
        return files.same(file.table(), table)
    except Damaged:
        return False


def is_old(path: Path) -> bool:
    """Whether a file has lain there longer than any writer takes from its first file to its last."""
    try:
        return time.time() - path.stat().st_mtime > STALE_S
    except FileNotFoundError:
        return False


def size_of(path: Path) -> int | None:
    """Bytes of a file; None if somebody has removed it since it was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def mark_in_use(file: BinaryIO) -> None:
    """Keep ``store gc`` from taking a file that is being written for what a killed process left."""
    # The kernel takes the mark away when the process ends, however it ends. Some network disks have no locks: there age
    # alone tells.
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_in_use(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _sync_folder(folder: Path) -> None:
    # Without this the rename itself may be lost in a power failure.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
