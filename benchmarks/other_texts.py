"""Make the texts of suite ``text`` that the package does not have; docs/real.md has their hashes.

``python -m benchmarks.other_texts library`` copies the sources of the standard library of the Python that runs this,
which must be 3.11.7, into the folder ``library``. ``python -m benchmarks.other_texts dictionary prose`` makes
``dictionary.txt`` and the folder ``prose`` where two packages of Debian 12 are unpacked::

    apt-get download dict-gcide anarchism
    for package in *.deb; do dpkg-deb -x $package .; done
"""

import gzip
import platform
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.freeze_corpus import NOT_READ
from synthbench.errors import UnknownName, UsageError
from synthbench.tasks.real._corpus import corpus_at

NOT_COPIED = NOT_READ | {"idle_test", "encodings"}
"""Folders: more tests, and tables of characters."""
VERSION = "3.11.7"
"""Of the Python whose library the study of validity reads."""
WRITTEN_BY_INSTALLATION = ("_sysconfigdata", "config-")
"""Beginnings of names: these files differ between machines."""


def copy_library(source: Path, copy: Path) -> Path:
    """Copy the sources of a standard library, with the ends of lines that Unix has."""
    for path in source.rglob("*.py"):
        name = path.relative_to(source)
        if NOT_COPIED.isdisjoint(name.parts) and not name.as_posix().startswith(WRITTEN_BY_INSTALLATION):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))
    return copy


def library() -> Path:
    """Copy the sources of this Python's library into the folder ``library``.

    Raises:
        UsageError: If this is another version, whose library is another text.
    """
    if platform.python_version() != VERSION:
        raise UsageError(f"this is Python {platform.python_version()}; allowed for the text library: {VERSION}")
    return copy_library(Path(sysconfig.get_path("stdlib")), Path("library"))


def copy_dictionary(unpacked: Path, copy: Path) -> Path:
    """Copy the GNU Collaborative International Dictionary of English."""
    copy.write_bytes(_text(unpacked / "usr/share/dictd/gcide.dict.dz"))
    return copy


def copy_prose(unpacked: Path, copy: Path) -> Path:
    """Copy An Anarchist FAQ."""
    copy.mkdir(exist_ok=True)
    for path in (unpacked / "usr/share/doc/anarchism/markdown").iterdir():
        (copy / path.name.removesuffix(".gz")).write_bytes(_text(path))
    return copy


def _text(path: Path) -> bytes:
    """The content of a file, unpacked if it is compressed, without bytes that are not UTF-8."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix in {".dz", ".gz"} else content).decode(errors="ignore").encode()


TEXTS: dict[str, Callable[[], Path]] = {
    "library": library,
    "dictionary": lambda: copy_dictionary(Path(), Path("dictionary.txt")),
    "prose": lambda: copy_prose(Path(), Path("prose")),
}


def main(names: Sequence[str]) -> None:
    """Make the texts that are named, and print their hashes.

    Raises:
        UnknownName: If there is no such text; none is made then.
        UsageError: If this is not the Python whose library is asked for.
    """
    if unknown := [name for name in names if name not in TEXTS]:
        raise UnknownName("text", unknown[0], TEXTS)
    for name in names:
        copy = TEXTS[name]()
        corpus = corpus_at(str(copy))
        size = sum(map(len, corpus.splits.values()))
        sys.stdout.write(f"{copy}: {corpus.name}, {size:,} bytes\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UsageError as error:
        sys.exit(f"other_texts: {error}")
