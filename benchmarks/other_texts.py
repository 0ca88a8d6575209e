"""Make the texts of suite ``text`` that the package does not have; docs/real.md has their hashes.

``python -m benchmarks.other_texts library`` copies the sources of the standard library of the Python that runs this,
which must be 3.11.7, into the folder ``library``. ``python -m benchmarks.other_texts dictionary prose`` makes
``dictionary.txt`` and the folder ``prose`` where two packages of Debian 12 are unpacked::

    apt-get download dict-gcide anarchism
    for package in *.deb; do dpkg-deb -x $package .; done
"""

import gzip
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from benchmarks.freeze_corpus import NOT_READ
from synthbench.tasks.real._corpus import corpus_at

NOT_COPIED = NOT_READ | {"idle_test", "encodings"}
"""Folders: more tests, and tables of characters."""
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
    "library": lambda: copy_library(Path(sysconfig.get_path("stdlib")), Path("library")),
    "dictionary": lambda: copy_dictionary(Path(), Path("dictionary.txt")),
    "prose": lambda: copy_prose(Path(), Path("prose")),
}


def main() -> None:
    """Make the texts that are named, and print their hashes."""
    for name in sys.argv[1:]:
        copy = TEXTS[name]()
        corpus = corpus_at(str(copy))
        size = sum(map(len, corpus.splits.values()))
        sys.stdout.write(f"{copy}: {corpus.name}, {size:,} bytes\n")


if __name__ == "__main__":
    main()
