"""Packs the measurements of a device into a few small files, to take along from a borrowed machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from synthbench.errors import StoreError
from synthbench.results import Store
from synthbench.trust.bundle import write_archive

MAX_FILES = 8
MAX_BYTES = 16 * 2**20
"""Of each archive."""
RESERVED_S = 10.0
"""Of a call's time, for compacting the stores and writing the archives."""

_CAPACITY = MAX_BYTES - 2**16
"""Less than an archive may have, by what tar and gzip add to files that are compressed already."""
_OVERHEAD = 1024
"""Bytes that tar adds to a file at most: its header, and zeros up to a multiple of 512."""


@dataclass(frozen=True)
class Piece:
    """Files that make sense together only: a store, or a single file."""

    name: str
    files: tuple[Path, ...]

    @property
    def num_bytes(self) -> int:
        """Most bytes that it adds to an archive."""
        return sum(path.stat().st_size + _OVERHEAD for path in self.files)


@dataclass
class Archived:
    """Archives written, and files left out."""

    files: list[Path] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Reasons, by name."""


def archive(folder: Path, target: Path) -> Archived:
    """Write ``DEVICE-1.tar.gz`` and so on: rows, outputs of steps, and stores, which are compacted first.

    Names in an archive begin with the folder's own, so that ``tar xf`` beside it puts everything in its place. The
    smallest pieces come first; what does not fit is left out and named. Older archives of the device are replaced.

    Args:
        folder: Of the device.
        target: Where the archives go; made if it does not exist.

    Raises:
        StoreError: If they cannot be written.
    """
    done = Archived()
    pieces = sorted(_pieces(folder, done), key=lambda piece: (piece.num_bytes, piece.name))
    try:
        target.mkdir(parents=True, exist_ok=True)
        for number, group in enumerate(_grouped(pieces, done), start=1):
            whole = target / f"{folder.name}-{number}.tar.gz"
            draft = whole.with_name(f"{whole.name}.part")
            write_archive(folder.parent, [path for piece in group for path in piece.files], draft)
            done.files.append(draft.replace(whole))
        for number in range(len(done.files) + 1, MAX_FILES + 1):
            (target / f"{folder.name}-{number}.tar.gz").unlink(missing_ok=True)
    except OSError as problem:
        raise StoreError(f"archives cannot be written to {str(target)!r}: {problem}") from None
    return done


def _pieces(folder: Path, done: Archived) -> Iterator[Piece]:
    for path in sorted(folder.iterdir()):
        if path.suffix in (".txt", ".parquet"):
            yield Piece(path.name, (path,))
        elif (path / "store.json").exists():
            try:
                yield _compacted(path)
            except StoreError as problem:
                done.left_out[path.name] = str(problem)


def _compacted(store: Path) -> Piece:
    Store.open(store, create=True).compact()
    kept = (store / "store.json", *sorted(store.glob("compact/*.parquet")), *sorted(store.glob("verified/*.parquet")))
    return Piece(store.name, kept)


def _grouped(pieces: Sequence[Piece], done: Archived) -> list[list[Piece]]:
    """Pieces by archive, each in the first that has room for it."""
    groups: list[list[Piece]] = []
    for piece in pieces:
        room = next((group for group in groups if _size(group) + piece.num_bytes <= _CAPACITY), None)
        if room is not None:
            room.append(piece)
        elif piece.num_bytes <= _CAPACITY and len(groups) < MAX_FILES:
            groups.append([piece])
        else:
            done.left_out[piece.name] = f"{piece.num_bytes / 2**20:.1f} MiB do not fit"
    return groups


def _size(group: Sequence[Piece]) -> int:
    return sum(piece.num_bytes for piece in group)
