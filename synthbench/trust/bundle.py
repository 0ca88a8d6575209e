"""Read and write untrusted rows in transit between stores: as a folder, a Parquet file or a ``.tar.gz``.

A bundle is a small store (a folder of result rows) with a ``manifest.json``, and the file of a plugin if the rows need
one::

    manifest.json                       counts and hashes of the content
    store.json  compact/runs-<hash>.parquet  compact/curves-<hash>.parquet
    plugin/my_idea.py                   stored only; nothing in this module runs it

Nothing in a bundle is unpickled or evaluated. Only files with names from a short list are accepted, so no file is
written outside the folder.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from synthbench import __version__
from synthbench.errors import StoreError, UsageError
from synthbench.process import temporary_folder
from synthbench.results.store import Store, read_plain
from synthbench.trust.audit import digest

MAX_BYTES = 2**28
"""Size limit of a bundle in bytes, both as an archive and unpacked."""
MAX_MEMBERS = 8
"""Limit on the number of files in an archive."""
MAX_MANIFEST_BYTES = 2**16
MAX_HEADER_BYTES = 2**16
"""Limit on the headers before a file in an archive, in bytes; tarfile alone would read any number of them."""

MANIFEST = "manifest.json"
ENVIRONMENT = ("device_name", "num_threads", "os", "python", "torch", "numpy", "cuda", "synthbench_version", "git_sha")
"""Columns whose values a manifest lists."""

PLUGIN_FILE = re.compile(r"[a-z_][a-z0-9_]{0,63}\.py")
"""Pattern of the file names under which a bundle can hold a plugin."""
_MEMBER = re.compile(
    rf"manifest\.json|store\.json|compact/(runs|curves)-[0-9a-f]{{16}}\.parquet|plugin/{PLUGIN_FILE.pattern}"
)

Text = Annotated[str, Field(max_length=200)]
Texts = Annotated[tuple[Text, ...], Field(max_length=64)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(BaseModel):
    """Manifest of a bundle: its declared content. Readers check the counts and hashes in it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal[1] = 1
    writer: Text = f"synthbench {__version__}"
    suite: Text
    suite_version: Text
    mechanisms: Annotated[Texts, Field(min_length=1)]
    """Mechanisms as named on the command line, such as ``slay:R=3,P=8``."""
    block: Text | None
    positions: Text | None
    device_type: Text
    plugin: Annotated[str, Field(pattern=f"^{PLUGIN_FILE.pattern}$")] | None
    """Name of the plugin's file in ``plugin/``; None if there is none."""
    plugin_sha256: Sha256 | None
    package: Text | None
    """Distribution that defines the mechanisms, pinned: ``name==version``; None if there is none."""
    num_rows: Annotated[int, Field(ge=1)]
    num_curves: Annotated[int, Field(ge=0)]
    digest: Sha256
    """Hash over the ids and checksums of all rows."""
    environment: Annotated[dict[Text, Texts], Field(max_length=len(ENVIRONMENT))]
    """Distinct values in the rows of each column of ``ENVIRONMENT``."""


def environment_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Collect the machines and versions that made the rows: the distinct values in the columns of ``ENVIRONMENT``."""
    return {name: tuple(sorted({str(row[name]) for row in rows if row[name] is not None})) for name in ENVIRONMENT}


def pack(store: Store, run_ids: Sequence[str], manifest: Manifest, plugin: Path | None, target: Path) -> None:
    """Write rows, a manifest and a plugin as a bundle: a folder, or an archive if ``target`` ends in ``.tar.gz``.

    Equal arguments give equal bytes.

    Args:
        store: The store with the rows.
        run_ids: Run ids of the rows to include.
        manifest: The manifest, a description of these rows.
        plugin: The plugin file that the manifest names; None if it names no plugin.
        target: Path of the bundle, which must not exist yet.

    Raises:
        UsageError: If the target already exists.
        StoreError: If the target cannot be written.
    """
    if target.exists():
        raise UsageError(f"{target} exists; name another file or folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the finished bundle only needs another name: it is never there in part.
        with temporary_folder(".synthbench-bundle-", target.parent) as scratch:
            made, draft = Path(scratch) / "made", Path(scratch) / "draft"
            Store.open(made, create=True).import_rows(store, run_ids)
            (made / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
            if plugin is not None:
                (made / "plugin").mkdir()
                shutil.copyfile(plugin, made / "plugin" / plugin.name)
            files = sorted(path for path in made.rglob("*") if _MEMBER.fullmatch(path.relative_to(made).as_posix()))
            if target.name.endswith(".tar.gz"):
                write_archive(made, files, draft)
            else:
                for path in files:
                    copy = draft / path.relative_to(made)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, copy)
            draft.rename(target)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error


@contextmanager
def opened(path: Path) -> Iterator[tuple[Store, Manifest | None]]:
    """Open a store's folder, a Parquet file of rows or a bundle; yield its rows as a store, and its manifest.

    The manifest, a description of the rows, is None if there is none.

    Raises:
        StoreError: If ``path`` cannot be read, if it is too large, or if it contains something that does not belong in
            a bundle.
    """
    if path.is_dir():
        yield Store.open(path, create=False), _manifest(path)
        return
    with temporary_folder("synthbench-rows-") as scratch:
        folder = Path(scratch)
        if path.name.endswith(".tar.gz"):
            _unpack(path, folder)
            if not (folder / MANIFEST).exists():
                raise StoreError(f"{path} is no bundle: it has no {MANIFEST}")
        elif path.suffix == ".parquet":
            Store.open(folder, create=True)
            content = _content(path)
            name = hashlib.sha256(content).hexdigest()[:16]
            (folder / "compact" / f"runs-{name}.parquet").write_bytes(content)
        else:
            raise StoreError(f"{path} holds no rows; allowed: a store's folder, a .parquet file, a .tar.gz bundle")
        yield Store.open(folder, create=False), _manifest(folder)


def faults_of_bundle(store: Store, rows: Sequence[Mapping[str, Any]], manifest: Manifest) -> list[str]:
    """List the differences between a bundle and its manifest: in rows, curves, plugin and environment."""
    num_curves = store.curves()["run_id"].nunique()
    num_with_curve = sum(row["curve_sha256"] is not None for row in rows)
    plugin = None if manifest.plugin is None else sha256_of(store.root / "plugin" / manifest.plugin)
    compared = {
        "rows": (manifest.num_rows, len(rows)),
        "curves": (manifest.num_curves, num_curves),
        "curves of its rows": (num_with_curve, num_curves),
        "digest": (manifest.digest, digest(rows)),
        "plugin_sha256": (manifest.plugin_sha256, plugin),
        "environment": (manifest.environment, environment_of(rows)),
    }
    return [f"{name}: {said} in the manifest, {is_} found" for name, (said, is_) in compared.items() if said != is_]


def sha256_of(path: Path) -> str | None:
    """Hash a file's content to 64 hex digits; None if there is no such file."""
    return hashlib.sha256(_content(path)).hexdigest() if path.is_file() else None


def write_archive(folder: Path, files: Iterable[Path], target: Path) -> None:
    """Write files to a ``.tar.gz`` archive, named relative to ``folder``; the same files give the same bytes."""
    # No times, owners or order of the disk.
    with (
        target.open("xb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for path in files:
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size, member.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                archive.addfile(member, content)


class _Capped(io.RawIOBase):
    """A stream that raises an error after ``MAX_BYTES``, since a few kilobytes can unpack to any size.

    It also raises if the headers before a file take more than ``MAX_HEADER_BYTES``.
    """

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream, self._left, self._left_of_header = stream, MAX_BYTES, MAX_HEADER_BYTES

    def accept(self, num_bytes: int) -> None:
        """Allow reading of the next ``num_bytes`` bytes, a file's content, and of the headers before another file."""
        self._left_of_header = num_bytes + MAX_HEADER_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise StoreError(f"it unpacks to more than {MAX_BYTES} bytes")
        self._left_of_header -= len(content)
        if self._left_of_header < 0:
            raise StoreError(f"it has more than {MAX_HEADER_BYTES} bytes of headers before a file")
        return content


def _unpack(path: Path, folder: Path) -> None:
    seen: set[str] = set()
    content = io.BytesIO(_content(path))
    try:
        with (
            gzip.open(content, "rb") as packed,
            _Capped(packed) as capped,
            tarfile.open(fileobj=capped, mode="r|") as archive,
        ):
            for member in archive:
                _check_member(member, seen)
                seen.add(member.name)
                capped.accept(member.size)
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                # Not extract(filter=...), which Python has from 3.11.4: the member is a plain file with a name of ours.
                with cast("IO[bytes]", archive.extractfile(member)) as unpacked, target.open("xb") as file:
                    shutil.copyfileobj(unpacked, file)
    except StoreError as problem:
        raise StoreError(f"{path} is refused: {problem}") from None
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as problem:
        raise StoreError(f"{path} is not a readable bundle: {str(problem)[:200]}") from None


def _check_member(member: tarfile.TarInfo, seen: set[str]) -> None:
    name = repr(member.name[:100])
    if not member.isreg() or member.issparse():
        raise StoreError(f"{name} is no plain file")
    if not _MEMBER.fullmatch(member.name):
        raise StoreError(f"it holds {name}, which is no part of a bundle")
    if member.name in seen:
        raise StoreError(f"it holds {name} twice")
    if len(seen) == MAX_MEMBERS:
        raise StoreError(f"it holds more than {MAX_MEMBERS} files")


def _manifest(folder: Path) -> Manifest | None:
    path = folder / MANIFEST
    try:
        return Manifest.model_validate_json(read_plain(path, MAX_MANIFEST_BYTES))
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StoreError(f"{path} cannot be read: {problem.strerror}") from problem
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreError(f"{MANIFEST}: {where}: {first['msg']}") from None
    except ValueError as problem:
        raise StoreError(f"{MANIFEST}: {problem}; allowed: a file of up to {MAX_MANIFEST_BYTES} bytes") from None


def _content(path: Path) -> bytes:
    """Read a file that a user names, directly or by a link, if it is a plain file of up to ``MAX_BYTES`` bytes."""
    try:
        return read_plain(Path(os.path.realpath(path)), MAX_BYTES)
    except OSError as problem:
        raise StoreError(f"{path} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise StoreError(f"{path} is refused: {problem}; allowed: a plain file of up to {MAX_BYTES} bytes") from None
