"""Bytes of a text, divided into training, validation and test: the packaged corpus or the user's own files."""

import hashlib
import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from synthbench.errors import StoreError, UsageError
from synthbench.tasks.base import SPLITS, Split

FROZEN = Path(__file__).with_name("python_docstrings.json.xz")
FROZEN_HASH = "sha256-837739805885dfce"
"""Value of :func:`hash_of` for the documents of :data:`FROZEN`, which are from Python 3.11.7."""

HELD_OUT = 10
"""Divisor of the corpus size: validation and test each have at most a tenth of all bytes."""
PARTS = 20
"""Number of pieces into which every document is cut if documents are too few or too large to hold out whole."""
MOST_BYTES = 1 << 28
"""Largest size of a corpus, in bytes."""
END = b"\0"
"""Separator between two documents of a split; no text contains it."""

_ALLOWED = "allowed: a file of UTF-8 text, or a folder of such files"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Bytes of the training, validation and test splits of a text; the name is a hash of the text's documents."""

    name: str
    splits: Mapping[Split, UInt8[np.ndarray, " bytes"]]


def corpus_at(path: str) -> Corpus:
    """Read a corpus from a file or a folder of texts; if the path is empty, load the packaged corpus.

    The corpus is cached until a file changes.

    Raises:
        UsageError: If the path cannot be read, or its content is empty, too large, not UTF-8, or has a zero byte.
    """
    if not path:
        return frozen()
    try:
        files = dict(_files(Path(path).expanduser()))
        stamps = tuple((name, str(file), file.stat().st_mtime_ns, file.stat().st_size) for name, file in files.items())
    except OSError as problem:
        raise UsageError(f"text:path is {path!r}: {problem.strerror}; {_ALLOWED}") from None
    if not (size := sum(stamp[-1] for stamp in stamps)):
        raise UsageError(f"text:path is {path!r}, which has no text; {_ALLOWED}")
    if size > MOST_BYTES:
        raise UsageError(f"text:path is {path!r}, which has {size:,} bytes; allowed: up to {MOST_BYTES:,}")
    return _read(path, stamps)


@lru_cache(maxsize=1)
def frozen() -> Corpus:
    """Load the packaged corpus: docstrings and help topics of Python's standard library.

    Raises:
        StoreError: If the file of the corpus is missing or damaged.
    """
    try:
        documents: dict[str, str] = json.loads(lzma.decompress(FROZEN.read_bytes()))
        corpus = corpus_of({name: text.encode() for name, text in documents.items()})
    except (OSError, ValueError, lzma.LZMAError) as problem:
        raise StoreError(f"cannot read {FROZEN}: {problem}; install synthbench again") from None
    if corpus.name != FROZEN_HASH:
        raise StoreError(f"{FROZEN} has the hash {corpus.name}, not {FROZEN_HASH}; install synthbench again")
    return corpus


def corpus_of(documents: Mapping[str, bytes]) -> Corpus:
    """Build a corpus from a map of names to documents: hash the documents and divide them into splits."""
    parts = split(documents)
    texts = {
        name: np.frombuffer(END.join(parts[name][key] for key in sorted(parts[name])), np.uint8) for name in SPLITS
    }
    return Corpus(hash_of(documents), texts)


def hash_of(documents: Mapping[str, bytes]) -> str:
    """Compute a hash of the names and contents of documents; rows of results record this hash in place of the text."""
    digest = hashlib.sha256()
    for name in sorted(documents):
        for part in (name.encode(), documents[name]):
            digest.update(hashlib.sha256(part).digest())
    return f"sha256-{digest.hexdigest()[:16]}"


def split(documents: Mapping[str, bytes]) -> dict[Split, dict[str, bytes]]:
    """Divide documents among training, validation and test; keep documents whole if possible.

    Test and validation may each have up to a tenth of all bytes; training has no limit. Documents are taken in the
    order of the hashes of their names. Each document goes to test if there is room, else to validation if there is
    room, else to training. If test or validation then remains less than half full, every document is cut into
    contiguous pieces, and the pieces are divided instead.

    >>> parts = split({name: b"text " * 9 for name in "abcdefghijklmnopqrstuvwxyz"})
    >>> {name: len(documents) for name, documents in parts.items()}
    {'train': 22, 'validation': 2, 'test': 2}
    """
    divided = _divided(documents)
    least = sum(map(len, documents.values())) // (2 * HELD_OUT)
    if min(sum(map(len, divided[name].values())) for name in ("validation", "test")) < least:
        divided = _divided(dict(_pieces(documents)))
    return divided


def _divided(documents: Mapping[str, bytes]) -> dict[Split, dict[str, bytes]]:
    room = dict.fromkeys(("test", "validation"), sum(map(len, documents.values())) // HELD_OUT)
    divided: dict[Split, dict[str, bytes]] = {name: {} for name in SPLITS}
    for document in sorted(documents, key=lambda name: hashlib.sha256(name.encode()).digest()):
        size = len(documents[document])
        where: Split = "test" if size <= room["test"] else "validation" if size <= room["validation"] else "train"
        divided[where][document] = documents[document]
        if where in room:
            room[where] -= size
    return divided


def _pieces(documents: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for name, text in documents.items():
        cuts = [len(text) * part // PARTS for part in range(PARTS + 1)]
        for part in range(PARTS):
            yield f"{name}#{part:02d}", text[cuts[part] : cuts[part + 1]]


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of a single file, or of each file in and below a folder, except hidden files."""
    if not path.is_dir():
        yield "text", path  # whatever a single file is called, it is the same corpus
        return
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            yield name.as_posix(), file


@lru_cache(maxsize=4)
def _read(path: str, stamps: tuple[tuple[str, str, int, int], ...]) -> Corpus:
    documents = {}
    for name, file, _, _ in stamps:
        try:
            content = Path(file).read_bytes()
            content.decode()
        except OSError as problem:
            raise UsageError(f"text:path is {path!r}: {file}: {problem.strerror}; {_ALLOWED}") from None
        except UnicodeDecodeError as problem:
            raise UsageError(
                f"text:path is {path!r}, where {file} is not UTF-8 text, from byte {problem.start:,}; {_ALLOWED}"
            ) from None
        if END in content:
            raise UsageError(
                f"text:path is {path!r}, where {file} has a zero byte, at {content.index(END):,}, as no text has; "
                f"{_ALLOWED}"
            )
        if content:
            documents[name] = content
    return corpus_of(documents)
