"""Documents with sets of labels, in the format of the Extreme Classification Repository: those of WordNet, or yours."""

import gzip
import lzma
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from synthbench.errors import StoreError, UsageError
from synthbench.tasks.base import Split
from synthbench.tasks.real._corpus import hash_of

FROZEN = {name: Path(__file__).with_name(f"wordnet_{name}.txt.xz") for name in ("train", "test")}
FROZEN_HASH = "sha256-ce1f57bf3ff25023"
"""What :func:`hash_of` gives for the contents of :data:`FROZEN`, made from WordNet 3.0."""


class Facts(NamedTuple):
    """What is known of documents as a whole."""

    num_features: int
    num_labels: int
    shortest: int
    """Tokens with which at least :data:`SHARE_WHOLE` of the documents keep all their features, and all their labels."""
    floor: float
    """Share of the documents to test on that have their most frequent label."""


FROZEN_FACTS = Facts(5_000, 3_616, 50, 386 / 3_809)
"""Those of :data:`FROZEN`, so that it need not be read where no more is asked for."""

SHARE_WHOLE = 0.99
"""Least share of the documents that keep all their features: the longest of all would make every row longer."""
VALIDATION = 10
"""One in so many documents of the training file is for validation."""
MOST_BYTES = 1 << 28
"""Of a file: Eurlex-4K's have less than a fifth of it."""

_HEADER = re.compile(rb"(\d{1,9}) (\d{1,9}) (\d{1,9})\s*")
_DOCUMENT = re.compile(rb"(\d{1,9}(?:,\d{1,9})*)?((?: +\d{1,9}:[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)*)\s*")
_ALLOWED = (
    "allowed: a folder with one file *train.txt and one *test.txt, or with .gz, in the format of the Extreme "
    "Classification Repository"
)


class Rows(NamedTuple):
    """Rows of numbers, each of a length of its own."""

    flat: Shaped[np.ndarray, " entries"]
    begins: Int[np.ndarray, " rows_and_end"]
    """Where each row begins in ``flat``, and the end of the last."""

    @property
    def sizes(self) -> Int[np.ndarray, " rows"]:
        """The length of each."""
        return np.diff(self.begins)

    def table(self, chosen: Int[np.ndarray, " chosen"], width: int, empty: int) -> Shaped[np.ndarray, "chosen width"]:
        """The first numbers of some rows; ``empty`` behind the end of a shorter one.

        >>> Rows(np.array([7, 8, 9]), np.array([0, 1, 3])).table(np.array([1, 0]), 2, -1).tolist()
        [[8, 9], [7, -1]]
        """
        places = self.begins[chosen, None] + np.arange(width)
        is_there = places < self.begins[chosen + 1, None]
        found = self.flat.take(places, mode="clip") if len(self.flat) else places
        return np.where(is_there, found, empty)

    def taken(self, chosen: Int[np.ndarray, " chosen"]) -> "Rows":
        """Some of the rows."""
        sizes = self.sizes[chosen]
        begins = np.concatenate([[0], np.cumsum(sizes)])
        places = np.arange(begins[-1]) + np.repeat(self.begins[chosen] - begins[:-1], sizes)
        return Rows(self.flat[places], begins)


class Documents(NamedTuple):
    """Some documents: what is in them, and what they are about."""

    features: Rows
    """The features of each, that of the largest value first."""
    values: Float[np.ndarray, " entries"]
    """Their values; the squares of a document's add up to 1."""
    labels: Rows

    def taken(self, chosen: Int[np.ndarray, " chosen"]) -> "Documents":
        """Some of them."""
        entries = Rows(np.arange(len(self.values)), self.features.begins).taken(chosen)
        return Documents(self.features.taken(chosen), self.values[entries.flat], self.labels.taken(chosen))


@dataclass(frozen=True, eq=False)
class Collection:
    """The documents of each split, and the hash of the files that they are from."""

    name: str
    num_features: int
    num_labels: int
    splits: Mapping[Split, Documents]

    @cached_property
    def facts(self) -> Facts:
        """Sizes, and the floor."""
        features, labels = (
            np.concatenate([getattr(part, rows).sizes for part in self.splits.values()])
            for rows in ("features", "labels")
        )
        shortest = max(2 * np.quantile(features, SHARE_WHOLE, method="higher"), labels.max())
        test = self.splits["test"].labels
        floor = np.bincount(test.flat).max() / len(test.sizes)
        return Facts(self.num_features, self.num_labels, int(shortest), float(floor))

    @property
    def counts(self) -> Int[np.ndarray, " labels"]:
        """How many documents of the training file, those for validation included, have each label."""
        flat = np.concatenate([self.splits[split].labels.flat for split in ("train", "validation")])
        return np.bincount(flat, minlength=self.num_labels)

    @property
    def num_counted(self) -> int:
        """Documents of the training file."""
        return sum(len(self.splits[split].labels.sizes) for split in ("train", "validation"))


def collection_at(path: str) -> Collection:
    """The documents in a folder; of an empty path, those of WordNet that come with synthbench.

    They are read once, and again if a file changes.

    Raises:
        UsageError: If there are none, or a file has another format.
    """
    if not path:
        return frozen()
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise UsageError(f"labels:path is {path!r}, which is no folder; {_ALLOWED}")
    files = []
    for name in FROZEN:
        found = sorted(file for file in folder.iterdir() if file.name.endswith((f"{name}.txt", f"{name}.txt.gz")))
        if len(found) != 1:
            names = ", ".join(file.name for file in found) or "no such file"
            raise UsageError(f"labels:path is {path!r}, which has {names} for *{name}.txt; {_ALLOWED}")
        if (size := found[0].stat().st_size) > MOST_BYTES:
            raise UsageError(f"{found[0]} has {size:,} bytes; allowed: up to {MOST_BYTES:,}")
        files.append((name, found[0], found[0].stat().st_mtime_ns))
    return _read(path, tuple(files))


@lru_cache(maxsize=1)
def frozen() -> Collection:
    """The documents that come with synthbench: definitions of nouns, and the kinds of thing that they name.

    Raises:
        StoreError: If a file is damaged.
    """
    try:
        contents = {name: lzma.decompress(file.read_bytes()) for name, file in FROZEN.items()}
        collection = _collection({name: (FROZEN[name].name, content) for name, content in contents.items()})
    except (OSError, ValueError, lzma.LZMAError) as problem:
        raise StoreError(f"cannot read {FROZEN['train'].parent}: {problem}; install synthbench again") from None
    if collection.name != FROZEN_HASH:
        raise StoreError(
            f"{FROZEN['train'].parent} has documents with the hash {collection.name}, not {FROZEN_HASH}; "
            "install synthbench again"
        )
    return collection


def read_documents(content: bytes) -> tuple[Documents, int, int]:
    r"""The documents that a file holds, and the numbers of features and labels that it announces.

    Its first line has the numbers of documents, features and labels; then each line is a document: its labels, divided
    by commas, and its features with their values. All are counted from 0. What has no label, or no feature with a value
    above 0, is left out.

    >>> documents, num_features, num_labels = read_documents(b"2 9 4\n1,3 0:1.5 8:2\n0 7:1\n")
    >>> documents.labels.table(np.arange(2), 2, -1).tolist(), documents.features.flat.tolist()
    ([[1, 3], [0, -1]], [8, 0, 7])

    Raises:
        ValueError: If the content is something else; the message says in which line.
    """
    first, *lines = content.removesuffix(b"\n").split(b"\n")
    header = _HEADER.fullmatch(first)
    if header is None:
        raise ValueError(f"line 1 is {_shown(first)}, not three numbers: documents, features, labels")
    num_documents, num_features, num_labels = map(int, header.groups())
    names, pairs = [], []
    for number, line in enumerate(lines, start=2):
        match = _DOCUMENT.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is {_shown(line)}, not labels and features such as 3,17 0:1.5 8:2")
        names.append(match[1] or b"")
        pairs.append(match[2])
    if len(names) != num_documents:
        raise ValueError(f"line 1 says {num_documents:,} documents, and {len(names):,} follow")
    labels = Rows(_numbers(names, b",").astype(np.int64), _begins([text.count(b",") + bool(text) for text in names]))
    numbers = _numbers(pairs, b":")
    features = Rows(numbers[::2].astype(np.int64), _begins([text.count(b":") for text in pairs]))
    _check("feature", features, num_features)
    _check("label", labels, num_labels)
    return _normal(features, numbers[1::2], labels), num_features, num_labels


def nearest_mean(collection: Collection) -> float:
    """Share of the documents to test on that have the label whose mean document in training is most similar.

    Similarity is the cosine; the label of fewest number wins a tie.
    """
    from scipy import sparse  # noqa: PLC0415 - half a second, and only a new collection needs it

    train, test = (collection.splits[split] for split in ("train", "test"))
    of_train, of_test = (
        sparse.csr_array(
            (part.values, part.features.flat, part.features.begins),
            shape=(len(part.features.sizes), collection.num_features),
        )
        for part in (train, test)
    )
    has_label = sparse.csr_array(
        (np.ones(len(train.labels.flat)), train.labels.flat, train.labels.begins),
        shape=(len(train.labels.sizes), collection.num_labels),
    )
    sums = has_label.T @ of_train
    lengths = np.sqrt(sums.multiply(sums).sum(axis=1))
    means = sparse.diags_array(1 / np.maximum(lengths, np.finfo(np.float64).tiny)) @ sums
    nearest = (of_test @ means.T).toarray().argmax(axis=1)
    labels = test.labels.table(np.arange(len(nearest)), int(test.labels.sizes.max()), -1)
    return float((labels == nearest[:, None]).any(axis=1).mean())


def _numbers(texts: Sequence[bytes], between: bytes) -> Float[np.ndarray, " numbers"]:
    """The numbers in some texts, which have spaces, or something else, between them."""
    text = b" ".join(texts).replace(between, b" ").strip()
    return np.fromstring(text, dtype=np.float64, sep=" ") if text else np.zeros(0)


def _begins(sizes: Sequence[int]) -> Int[np.ndarray, " rows_and_end"]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _check(what: str, rows: Rows, most: int) -> None:
    """Refuse numbers beyond those that the first line of a file announces, and what a document has twice."""
    lines = np.repeat(np.arange(len(rows.sizes)), rows.sizes) + 2
    if (is_beyond := rows.flat >= most).any():
        where = is_beyond.argmax()
        raise ValueError(f"line {lines[where]} has {what} {rows.flat[where]}; allowed by line 1: 0 to {most - 1}")
    order = np.lexsort((rows.flat, lines))
    is_again = (np.diff(lines[order]) == 0) & (np.diff(rows.flat[order]) == 0)
    if is_again.any():
        where = order[is_again.argmax()]
        raise ValueError(f"line {lines[where]} has {what} {rows.flat[where]} twice")


def _normal(features: Rows, values: Float[np.ndarray, " entries"], labels: Rows) -> Documents:
    """Documents with values of length 1, their largest first, without those that have no value or no label."""
    rows = np.repeat(np.arange(len(features.sizes)), features.sizes)
    if (is_no_weight := (values < 0) | ~np.isfinite(values)).any():
        where = is_no_weight.argmax()
        raise ValueError(
            f"line {rows[where] + 2} has feature {features.flat[where]} with {values[where]:g}; allowed: 0 and more"
        )
    lengths = np.sqrt(np.bincount(rows, values**2, minlength=len(features.sizes)))
    values = values / np.maximum(lengths, np.finfo(np.float64).tiny)[rows]
    order = np.lexsort((features.flat, -values, rows))
    documents = Documents(Rows(features.flat[order], features.begins), values[order], labels)
    return documents.taken(np.flatnonzero((lengths > 0) & (labels.sizes > 0)))


def _collection(contents: Mapping[str, tuple[str, bytes]]) -> Collection:
    """The splits of the documents in a training file and a test file, each given by its name and content.

    Raises:
        ValueError: If one is something else, or they do not fit together.
    """
    documents, shapes = {}, {}
    for name, (file, content) in contents.items():
        try:
            documents[name], *shapes[name] = read_documents(content)
        except ValueError as problem:
            raise ValueError(f"{file}: {problem}") from None
        if len(documents[name].labels.sizes) < VALIDATION:
            raise ValueError(
                f"{file}: it has {len(documents[name].labels.sizes)} documents with features and labels; "
                f"allowed: {VALIDATION} and more"
            )
    if shapes["train"] != shapes["test"]:
        (train, _), (test, _) = contents["train"], contents["test"]
        what = " and ".join(f"{features:,} features and {labels:,} labels" for features, labels in shapes.values())
        raise ValueError(f"{train} and {test} have {what}; allowed: the same of both")
    numbers = np.arange(len(documents["train"].labels.sizes))
    is_held_out = numbers % VALIDATION == VALIDATION - 1
    splits: dict[Split, Documents] = {
        "train": documents["train"].taken(numbers[~is_held_out]),
        "validation": documents["train"].taken(numbers[is_held_out]),
        "test": documents["test"],
    }
    name = hash_of({name: content for name, (_, content) in contents.items()})
    num_features, num_labels = shapes["train"]
    return Collection(name, num_features, num_labels, splits)


def _shown(line: bytes) -> str:
    """The beginning of a line, for a message."""
    return repr(line[:40])[1:] if line else "empty"


@lru_cache(maxsize=2)
def _read(path: str, stamps: tuple[tuple[str, Path, int], ...]) -> Collection:
    try:
        return _collection({name: (file.name, _content(file)) for name, file, _ in stamps})
    except ValueError as problem:
        raise UsageError(f"labels:path is {path!r}, where {problem}; {_ALLOWED}") from None


def _content(file: Path) -> bytes:
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as opened:
            return opened.read(MOST_BYTES)
    except (OSError, EOFError, zlib.error) as problem:
        raise ValueError(f"{file.name}: {problem}") from None
