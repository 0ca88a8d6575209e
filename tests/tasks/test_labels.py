"""Labels: files of the Extreme Classification Repository and those of WordNet; P@k and PSP@k; bad input."""

import gzip
import io
import lzma
import math
import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.freeze_labels import documents as frozen_from
from benchmarks.freeze_labels import nouns
from synthbench.errors import StoreError, UsageError
from synthbench.knobs import arguments_of
from synthbench.tasks import IGNORE, SPLITS, sized
from synthbench.tasks.real import _documents
from synthbench.tasks.real._documents import (
    FROZEN,
    FROZEN_FACTS,
    FROZEN_HASH,
    Rows,
    collection_at,
    frozen,
    nearest_mean,
    read_documents,
)
from synthbench.tasks.real._ranking import DEPTHS, propensities, ranking_scores
from synthbench.tasks.real.labels import Labels
from tests.tasks._files import NUM_FEATURES, NUM_LABELS, Document, drawn, text_of, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "files", text_of(drawn(100)), text_of(drawn(30, seed=1)))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


# The files.


DOCUMENTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, NUM_LABELS - 1), unique=True, max_size=4),
        st.dictionaries(st.integers(0, NUM_FEATURES - 1), st.floats(0, 1e3, width=32), max_size=5),
    ),
    max_size=6,
)


@settings(max_examples=100)
@given(DOCUMENTS)
def test_what_is_written_is_read_again_strongest_features_first(written: list[Document]) -> None:
    documents, num_features, num_labels = read_documents(text_of(written).encode())
    kept = [
        (labels, {feature: float(f"{value:g}") for feature, value in features.items()})
        for labels, features in written
        if labels and any(float(f"{value:g}") for value in features.values())
    ]

    assert (num_features, num_labels) == (NUM_FEATURES, NUM_LABELS)
    assert len(documents.labels.sizes) == len(documents.features.sizes) == len(kept)
    for number, (labels, features) in enumerate(kept):
        of_document = slice(documents.features.begins[number], documents.features.begins[number + 1])
        found = documents.features.flat[of_document].tolist()
        values = documents.values[of_document]
        length = math.sqrt(sum(value**2 for value in features.values()))
        assert documents.labels.table(np.array([number]), 4, IGNORE)[0, : len(labels)].tolist() == labels
        assert sorted(found) == sorted(features)
        assert (np.diff(values) <= 0).all()
        np.testing.assert_allclose(values, [features[feature] / length for feature in found], rtol=1e-12)


def test_the_reader_reads_what_scikit_learns_does(need: Callable[[str, bool, str], None]) -> None:
    need("mlxtend", find_spec("sklearn") is not None, "it brings scikit-learn along")
    text = text_of(drawn(50))
    found, _, _ = read_documents(text.encode())
    table, labels = import_module("sklearn.datasets").load_svmlight_file(
        io.BytesIO(text.partition("\n")[2].encode()), n_features=NUM_FEATURES, multilabel=True, zero_based=True
    )
    dense = np.zeros((50, NUM_FEATURES))
    rows = np.repeat(np.arange(50), found.features.sizes)
    dense[rows, found.features.flat] = found.values
    expected = table.toarray()

    np.testing.assert_allclose(dense, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    assert [tuple(map(float, row[row >= 0])) for row in found.labels.table(np.arange(50), 5, -1)] == labels


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6), st.data())
def test_rows_are_lists_of_several_lengths(lists: list[list[int]], data: st.DataObject) -> None:
    rows = Rows(np.array([*chain(*lists)], dtype=np.int64), np.cumsum([0, *map(len, lists)]))
    chosen = np.array(data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=5)), dtype=np.int64)
    width = data.draw(st.integers(1, 5))
    expected = [(lists[row] + [-1] * width)[:width] for row in chosen]
    assert rows.table(chosen, width, -1).tolist() == expected
    assert rows.taken(chosen).table(np.arange(len(chosen)), width, -1).tolist() == expected
    assert rows.taken(chosen).sizes.tolist() == [len(lists[row]) for row in chosen]


def test_names_and_compression_of_the_files_are_no_matter(tmp_path: Path) -> None:
    texts = text_of(drawn(40)), text_of(drawn(20, seed=1))
    folders = [
        write(tmp_path / "plain", *texts),
        write(tmp_path / "named", *texts, prefix="eurlex_"),
        write(tmp_path / "zipped", *texts, is_zipped=True),
    ]

    assert len({Labels(str(place)).corpus for place in folders} - {FROZEN_HASH}) == 1


def test_files_are_read_again_when_they_change(folder: Path) -> None:
    before = Labels(str(folder)).corpus
    (folder / "test.txt").write_text(text_of(drawn(30, seed=2)))
    os.utime(folder / "test.txt", ns=(1, 1))

    assert Labels(str(folder)).corpus != before


# The splits and the sequences.


def test_a_tenth_of_the_training_file_is_for_validation_and_the_test_file_is_the_test(folder: Path) -> None:
    collection = collection_at(str(folder))
    train, test = (read_documents((folder / f"{name}.txt").read_bytes())[0] for name in ("train", "test"))

    assert {split: len(collection.splits[split].labels.sizes) for split in SPLITS} == {
        "train": 90,
        "validation": 10,
        "test": 30,
    }
    np.testing.assert_array_equal(collection.splits["test"].labels.flat, test.labels.flat)
    np.testing.assert_array_equal(
        collection.splits["validation"].labels.flat, train.labels.taken(np.arange(9, 100, 10)).flat
    )
    np.testing.assert_array_equal(collection.counts, np.bincount(train.labels.flat, minlength=NUM_LABELS))
    assert collection.num_counted == 100


def test_a_sequence_is_features_then_weights_and_its_targets_are_the_labels(tmp_path: Path) -> None:
    written: list[Document] = [([4, 1], {7: 3.0, 2: 4.0})] * 10
    task = Labels(str(write(tmp_path / "files", text_of(written), text_of(written)))).of_split("test")
    inputs, targets = task.sample(rng(), 1, 6)

    assert (task.vocab_size, task.num_classes, task.min_length) == (256, NUM_LABELS, 4)
    assert inputs.tolist() == [[3, 8, 0, 204, 153, 0]]  # 0.8 and 0.6 of 255
    assert targets.tolist() == [[4, 1, *[IGNORE] * 4]]
    assert task.sample(rng(), 1, 7).inputs.tolist() == [[3, 8, 0, 204, 153, 0, 0]]


def test_a_pass_reads_every_document_once(folder: Path) -> None:
    task = Labels(str(folder)).of_split("train")
    inputs, targets = task.sample(rng(), 200, task.min_length)
    whole = task.sample(rng(1), 90, task.min_length)

    def rows(some: np.ndarray) -> list[bytes]:
        return sorted(row.tobytes() for row in some)

    for part in (slice(0, 90), slice(90, 180)):
        assert rows(inputs[part]) == rows(whole.inputs)
        assert rows(targets[part]) == rows(whole.targets)


def test_at_a_length_of_99_in_100_the_weakest_features_of_the_others_are_left_out(tmp_path: Path) -> None:
    small: list[Document] = [([0], {1: 1.0})] * 199
    large: Document = ([0], {feature: feature + 1.0 for feature in range(5)})
    task = Labels(str(write(tmp_path / "files", text_of(small), text_of([*small, large])))).of_split("test")
    inputs, _ = task.sample(rng(), 200, 2)

    assert task.min_length == 2
    assert sorted(inputs[:, 0].tolist()) == [2] * 199 + [5]
    with pytest.raises(UsageError, match=r"length of task 'labels' is 1; allowed: 2 and more, so that at least 99%"):
        sized("labels", {"path": str(tmp_path / "files"), "length": 1})


def test_the_path_is_in_no_options_and_the_hash_is(folder: Path) -> None:
    task = Labels(str(folder))

    assert arguments_of(task) == arguments_of(task.of_split("test")) == {"corpus": collection_at(str(folder)).name}
    length, knobs = sized("labels", {"path": str(folder), "length": "16"})
    assert (length, knobs) == (16, {"path": str(folder), "corpus": task.corpus})


# Floor and reference.


def test_the_floor_is_the_most_frequent_label_of_the_test(folder: Path) -> None:
    documents = drawn(30, seed=1)
    shares = [sum(label in labels for labels, _ in documents) / 30 for label in range(NUM_LABELS)]

    assert Labels(str(folder)).floor(16).value == pytest.approx(max(shares))


def test_the_nearest_mean_is_that_of_a_plain_loop(folder: Path) -> None:
    def dense(features: dict[int, float]) -> np.ndarray:
        vector = np.zeros(NUM_FEATURES)
        vector[list(features)] = list(features.values())
        return vector / np.linalg.norm(vector)

    train = [document for number, document in enumerate(drawn(100)) if number % 10 != 9]
    means = []
    for label in range(NUM_LABELS):
        total = sum((dense(features) for labels, features in train if label in labels), np.zeros(NUM_FEATURES))
        means.append(total / np.linalg.norm(total))
    test = drawn(30, seed=1)
    right = [int(np.argmax([mean @ dense(features) for mean in means])) in labels for labels, features in test]

    assert nearest_mean(collection_at(str(folder))) == pytest.approx(np.mean(right))
    assert Labels(str(folder)).references(16) == {"nearest mean": pytest.approx(np.mean(right))}


# Precision at k.


def test_the_scores_of_a_small_example() -> None:
    """Three labels of propensity 1/2, 1/4 and 1/10; the second document has the rare one, and it is ranked last."""
    ranked = np.array([[0, 1, 2], [0, 1, 2]])
    targets = np.array([[0, 1, IGNORE], [2, IGNORE, IGNORE]])
    scores = ranking_scores(ranked, targets, np.array([1 / 2, 1 / 4, 1 / 10]))

    assert scores == pytest.approx(
        {
            "P@1": 1 / 2,  # of the first document
            "unnormalised PSP@1": 2 / 2,
            "PSP@1": 2 / (4 + 10),  # at best the label of 1/4, and that of 1/10
            "P@3": 3 / 6,
            "unnormalised PSP@3": (2 + 4 + 10) / 6,
            "PSP@3": 1,  # all labels are among the first three
        }
    )


def test_propensities_are_those_of_the_paper() -> None:
    num_documents, a, b = 15_539, 0.55, 1.5
    for count in (0, 1, 25, 1_000):
        c = (math.log(num_documents) - 1) * (b + 1) ** a
        expected = 1 / (1 + c * math.exp(-a * math.log(count + b)))
        assert propensities(np.array([count]), num_documents)[0] == pytest.approx(expected)


@settings(max_examples=100)
@given(st.integers(5, 9), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_scores_are_those_of_a_plain_loop(num_labels: int, num_documents: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    ranked = np.stack([draw.permutation(num_labels)[:5] for _ in range(num_documents)])
    sets = [draw.permutation(num_labels)[: draw.integers(1, 5)].tolist() for _ in range(num_documents)]
    targets = np.array([row + [IGNORE] * (5 - len(row)) for row in sets])
    propensity = draw.uniform(0.05, 1, num_labels)
    scores = ranking_scores(ranked, targets, propensity)

    assert len(scores) == 3 * len(DEPTHS)
    for k in DEPTHS:
        right, gain, best = 0.0, 0.0, 0.0
        for row, labels in zip(ranked, sets, strict=True):
            right += sum(label in labels for label in row[:k]) / k
            gain += sum(1 / propensity[label] for label in row[:k] if label in labels) / k
            best += sum(sorted((1 / propensity[label] for label in labels), reverse=True)[:k]) / k
        assert scores[f"P@{k}"] == pytest.approx(right / num_documents)
        assert scores[f"unnormalised PSP@{k}"] == pytest.approx(gain / num_documents)
        assert scores[f"PSP@{k}"] == pytest.approx(gain / best)
        assert 0 <= scores[f"PSP@{k}"] <= 1 + 1e-12


# Those of WordNet.


def test_the_documents_that_come_along_have_the_shape_of_eurlex() -> None:
    collection = frozen()
    sizes = {split: len(part.labels.sizes) for split, part in collection.splits.items()}

    assert collection.name == FROZEN_HASH == Labels().corpus
    assert collection.facts == FROZEN_FACTS
    assert sizes == {"train": 13_986, "validation": 1_553, "test": 3_809}
    assert sum(file.stat().st_size for file in FROZEN.values()) < 500_000
    longest = max(int(part.features.sizes.max()) for part in collection.splits.values())
    assert Labels.length == 2 * longest
    assert (collection.counts > 0).sum() > 3_500
    licence = FROZEN["train"].with_name("LICENSE-wordnet.txt").read_text(encoding="utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in licence


def test_no_document_is_in_two_of_its_splits() -> None:
    splits = frozen().splits
    rows = {
        split: {row.tobytes() for row in part.features.table(np.arange(len(part.features.sizes)), 41, -1)}
        for split, part in splits.items()
    }

    assert not (rows["train"] | rows["validation"]) & rows["test"]
    assert not rows["train"] & rows["validation"]


WORDNET = """  1 This software and database is provided to you
00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | that which is  
00000002 05 n 02 dog 0 hound 0 002 @ 00000001 n 0000 + 00000009 v 0101 | a canine animal; "the dog barked"  
00000003 05 n 01 Fido 0 001 @i 00000002 n 0000 | a good dog, a good animal  
"""  # noqa: W291 - the lines of WordNet end in two spaces


def test_a_noun_is_labelled_with_all_that_it_is_a_kind_of(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nouns(WORDNET)
    assert [noun.above for noun in found.values()] == [[], ["00000001"], ["00000002"]]
    assert found["00000003"].words == ["good", "dog", "good", "animal"]

    monkeypatch.setattr("benchmarks.freeze_labels.FEWEST", 1)
    monkeypatch.setattr("benchmarks.freeze_labels.MOST", 1)
    monkeypatch.setattr("benchmarks.freeze_labels.NUM_DOCUMENTS", {"test": 1, "train": 1})
    files = frozen_from(found)
    both = "".join(text.partition("\n")[2] for text in files.values()).splitlines()
    by_labels = {line.partition(" ")[0]: line for line in both}

    assert {text.partition("\n")[0] for text in files.values()} == {"1 9 2"}
    # The words by frequency, then by the alphabet: animal, dog, barked, canine, good, ...
    assert by_labels["0,1"] == f"0,1 0:{math.log(3 / 2):.2f} 1:{math.log(3 / 2):.2f} 4:{2 * math.log(3):.2f}"
    assert set(by_labels) == {"0", "0,1"}


def test_a_damaged_file_says_to_install_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.xz" for name in FROZEN}
    monkeypatch.setattr(_documents, "FROZEN", files)
    for content, message in (
        (b"no xz", "cannot read .*install synthbench again"),
        (lzma.compress(b"3 2"), "cannot read .*line 1 is '3 2', not three numbers"),
        (lzma.compress(text_of(drawn(20)).encode()), "has documents with the hash sha256-.*not sha256-.*install synth"),
    ):
        for file in files.values():
            file.write_bytes(content)
        frozen.cache_clear()
        with pytest.raises(StoreError, match=message):
            frozen()
    frozen.cache_clear()


# Bad input.


SOUND = text_of(drawn(20))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"train.txt: line 1 is empty, not three numbers: documents, features, labels; allowed: a folder"),
        ("\x89PNG\r\n\x1a\n\0\0", r"train.txt: line 1 is '\\x89PNG"),
        ("1,2 3:0.5\n", r"line 1 is '1,2 3:0.5', not three numbers"),
        ("1 12 6\n1,2\t3:0.5\n", r"line 2 is '1,2\\t3:0.5', not labels and features such as 3,17 0:1.5 8:2"),
        ("2 12 6\n1 3:0.5\n1 3:nan\n", r"line 3 is '1 3:nan', not labels"),
        ("2 12 6\n1 3:0.5\n", r"line 1 says 2 documents, and 1 follow"),
        ("1 12 6\n1 12:0.5\n", r"line 2 has feature 12; allowed by line 1: 0 to 11"),
        ("2 12 6\n0 1:1\n1,6 3:0.5\n", r"line 3 has label 6; allowed by line 1: 0 to 5"),
        ("1 12 6\n1,2,1 3:0.5\n", r"line 2 has label 1 twice"),
        ("1 12 6\n1 3:0.5 3:1\n", r"line 2 has feature 3 twice"),
        ("1 12 6\n1 3:0.5 4:-2\n", r"line 2 has feature 4 with -2; allowed: 0 and more"),
        ("1 12 6\n1 3:0.5\n", r"train.txt: it has 1 documents with features and labels; allowed: 10 and more"),
        (text_of(drawn(20), num_labels=7), r"train.txt and test.txt have 12 features and 7 labels and 12 features and"),
    ],
)
def test_what_is_no_such_file_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    folder = write(tmp_path / "files", SOUND, SOUND)
    (folder / "train.txt").write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match=message) as caught:
        Labels(str(folder))

    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_other_places_and_another_hash_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"labels:path is 'nowhere', which is no folder; allowed: a folder with one"):
        Labels("nowhere")
    folder = write(tmp_path / "files", SOUND, SOUND)
    (folder / "old_train.txt").write_text(SOUND)
    with pytest.raises(UsageError, match=r"which has old_train.txt, train.txt for \*train.txt; allowed: a folder"):
        Labels(str(folder))
    for file in folder.glob("*train.txt"):
        file.unlink()
    with pytest.raises(UsageError, match=r"which has no such file for \*train.txt; allowed: a folder"):
        Labels(str(folder))
    (folder / "train.txt.gz").write_bytes(gzip.compress(SOUND.encode())[:-20])
    with pytest.raises(UsageError, match=r"where train\.txt\.gz: .*; allowed: a folder with one file \*train\.txt"):
        Labels(str(folder))
    write(folder, SOUND, SOUND, is_zipped=True)
    (folder / "test.txt").unlink()
    with pytest.raises(UsageError, match=r"that in '.*' is 'sha256-.*put the old files back, or leave corpus out"):
        Labels(str(folder), corpus=FROZEN_HASH)
    with pytest.raises(UsageError, match=r"that of synthbench is 'sha256-.*name the file or folder"):
        Labels(corpus="sha256-0")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_documents, "MOST_BYTES", 100)
    folder = write(tmp_path / "files", SOUND, SOUND)
    with pytest.raises(UsageError, match=r"train.txt has \d+ bytes; allowed: up to 100"):
        Labels(str(folder))
