"""Rows on their way: what goes in comes out, and what no bundle holds is refused."""

import errno
import gzip
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from synthbench.errors import StoreError, UsageError
from synthbench.results import Store
from synthbench.trust import bundle
from synthbench.trust.audit import digest
from synthbench.trust.bundle import Manifest, environment_of, faults_of_bundle, opened, pack
from tests.results.rows import make_row, refused
from tests.results.stores import CURVE, filled


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return filled(tmp_path_factory.mktemp("made") / "results", [make_row(seed=seed) for seed in (42, 43, 44)], CURVE)


def manifest_of(store: Store, **changes: Any) -> Manifest:
    rows = store.table().to_pylist()
    facts: dict[str, Any] = {
        "suite": "paper", "suite_version": "2026.1", "mechanisms": ("softmax",), "block": None, "positions": None,
        "device_type": "cpu", "plugin": None, "plugin_sha256": None, "package": None, "num_rows": len(rows),
        "num_curves": len(rows), "digest": digest(rows), "environment": environment_of(rows),
    }  # fmt: skip
    return Manifest(**(facts | changes))


def packed(store: Store, target: Path) -> Path:
    pack(store, sorted(store.statuses()), manifest_of(store), None, target)
    return target


@pytest.mark.parametrize("name", ["bundle.tar.gz", "bundle"])
def test_a_bundle_gives_back_its_rows_and_curves_and_leaves_nothing_behind(
    store: Store, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", os.fspath(scratch))
    with opened(packed(store, tmp_path / name)) as (read, manifest):
        assert len(list(scratch.iterdir())) == (name == "bundle.tar.gz")
        assert read.table().equals(store.table())
        assert read.curves().equals(store.curves())
        assert manifest == manifest_of(store)
        assert manifest is not None
        assert faults_of_bundle(read, read.table().to_pylist(), manifest) == []
    assert list(scratch.iterdir()) == []


def test_the_same_rows_give_the_same_bytes(store: Store, tmp_path: Path) -> None:
    first, second = packed(store, tmp_path / "one.tar.gz"), packed(store, tmp_path / "other.tar.gz")

    assert first.read_bytes() == second.read_bytes()
    with pytest.raises(UsageError, match="exists"):
        packed(store, first)


@pytest.mark.parametrize("name", ["bundle.tar.gz", "bundle"])
def test_a_bundle_that_cannot_be_finished_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(StoreError, match="No space left"):
        packed(store, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_rows": 2}, "rows"),
        ({"num_curves": 4}, "curves"),
        ({"digest": "0" * 64}, "digest"),
        ({"environment": {"torch": ("9",)}}, "environment"),
        ({"plugin": "gone.py"}, None),
        ({"plugin_sha256": "0" * 64}, "plugin_sha256"),
    ],
)
def test_a_manifest_that_says_something_else_is_named(store: Store, changes: dict[str, Any], named: str | None) -> None:
    faults = faults_of_bundle(store, store.table().to_pylist(), manifest_of(store, **changes))
    kinds = [fault.partition(":")[0] for fault in faults]

    assert kinds == ([named] if named else [])


def member(name: str, **facts: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for fact, value in facts.items():
        setattr(made, fact, value)
    return made


def check_refused(path: Path, message: str) -> None:
    with pytest.raises(StoreError, match=message), opened(path):
        pytest.fail("it was opened")


def block(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    """The header of a file in an archive, whatever follows it."""
    return member(name, type=kind, size=size).tobuf(tarfile.USTAR_FORMAT)


def pax(key: str, value: str, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """A PAX header with one record that is shorter than 100 bytes or longer than 1 MB."""
    length = len(key) + len(value) + 3
    length += 2 if length < 97 else len(str(length))
    record = f"{length} {key}={value}\n".encode()
    return block("pax", kind, len(record)) + record + bytes(-len(record) % 512)


FILE = block("manifest.json", size=2) + b"{}" + bytes(510)
LONG_NAME = block("long", tarfile.GNUTYPE_LONGNAME, 2**22) + b"a" * 2**22
SPARSE = pax("GNU.sparse.major", "1") + pax("GNU.sparse.minor", "0") + block("manifest.json", size=2**22)


STRANGE_NAMES = ["../evil.py", "/tmp/evil.py", "compact/../../evil.parquet"]  # noqa: S108 - never written
STRANGE_NAMES += ["plugin/a/b.py", "plugin/evil.pkl", "verified/verified-0123456789abcdef.parquet"]
STRANGE_KINDS = [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, b"Z"]
HEADERS = "65536 bytes of headers"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((block(name), "no part of a bundle") for name in STRANGE_NAMES),
        (member("x" * 5000).tobuf(), "no part of a bundle"),
        (pax("path", "../evil") + FILE, "no part of a bundle"),
        *((block("manifest.json", kind, 2) + b"{}" + bytes(510), "no plain file") for kind in STRANGE_KINDS),
        (block("plugin", tarfile.DIRTYPE), "no plain file"),
        (block("manifest.json", tarfile.GNUTYPE_SPARSE, 512) + bytes(512), "no plain file"),
        (member("manifest.json", type=tarfile.SYMTYPE, linkname="/etc/passwd").tobuf(), "no plain file"),
        (member("manifest.json", type=tarfile.LNKTYPE, linkname="store.json").tobuf(), "no plain file"),
        (FILE + FILE, "twice"),
        (block("manifest.json", size=2**24) + bytes(2**24), "unpacks to more than"),
        (bytes(2**24), "unpacks to more than|has no manifest"),
        (b"".join(block(f"compact/runs-{index:016x}.parquet") for index in range(10_000)), "more than 8 files"),
        (gzip.compress(FILE), "not a readable bundle"),
        (block("manifest.json", size=2) + b"{" + b" " * 2000 + b"}", "no results store|not a readable bundle"),
        (pax("size", "-512") + FILE, "not a readable bundle"),
        (pax("size", str(10**15)) + FILE, "unexpected end of data"),
        (block("manifest.json", size=10**9) + b"{}", "unexpected end of data"),
        (SPARSE + b"1000000\n" + b"0\n" * 2**20, f"{HEADERS}|not a readable bundle|no plain file"),
        (pax("GNU.sparse.map", "0," * 2**20 + "0") + FILE, HEADERS),
        (pax("comment", "0" * 2**21) + FILE, HEADERS),
        (pax("comment", "x", tarfile.XGLTYPE) * 10_000 + FILE, HEADERS),
        ((block("long", tarfile.GNUTYPE_LONGNAME, 4) + b"aaa" + bytes(509)) * 10_000 + FILE, HEADERS),
        (LONG_NAME + FILE, HEADERS),
    ],
    ids=range(31),
)
def test_what_no_bundle_holds_and_a_header_that_lies_or_never_ends_are_refused(
    tmp_path: Path, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", 2**23)
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(gzip.compress(content + bytes(1024), mtime=0))

    check_refused(path, message)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bundle.tar.gz"]


CUT = gzip.compress(FILE)[:-20]


@pytest.mark.parametrize(
    "content", [b"", b"garbage", gzip.compress(b"garbage" * 100), b"\x80\x04cos\nsystem\n.", CUT], ids=range(5)
)
def test_an_archive_that_is_cut_or_none_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(content)

    check_refused(path, r"bundle\.tar\.gz")


LONG = {"suite": "x" * 70_000}, "has 70[0-9]{3} bytes; allowed: a file of up to 65536 bytes"


@pytest.mark.parametrize(
    ("change", "message"), [*refused("manifest"), ({"mechanisms": ["x" * 300]}, "mechanisms"), LONG]
)
def test_a_manifest_is_read_strictly(store: Store, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = packed(store, tmp_path / "bundle")
    said = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(said | change))

    check_refused(folder, message)


def test_a_pipe_is_refused_and_not_waited_for(store: Store, tmp_path: Path) -> None:
    manifest = packed(store, tmp_path / "bundle") / "manifest.json"
    manifest.unlink()
    for path in (manifest, tmp_path / "pipe.parquet", tmp_path / "pipe.tar.gz"):
        os.mkfifo(path)
        (link := tmp_path / f"link-{path.name}").symlink_to(path)
        for named in (path.parent,) if path is manifest else (path, link):
            check_refused(named, "no plain file; allowed: a (plain )?file of up to")
