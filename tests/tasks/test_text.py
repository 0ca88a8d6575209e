"""Text: split by documents without overlap, one hash, lines and kinds as their definitions say, and bad input."""

import lzma
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthbench.errors import StoreError, UsageError
from synthbench.options import arguments_of
from synthbench.tasks import SPLITS, TASKS, sized
from synthbench.tasks.real import _corpus
from synthbench.tasks.real._corpus import END, FROZEN, FROZEN_HASH, corpus_at, corpus_of, frozen, hash_of, split
from synthbench.tasks.real._lines import reference_lines
from synthbench.tasks.real.text import CONTEXT, Text, repeats

PROSE = b"the cat sat on the mat, and the rat sat on the hat. "

names = st.text("abcdefghij/", min_size=1, max_size=6)
contents = st.binary(min_size=1, max_size=400).map(lambda text: text.replace(END, b" "))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A text of one's own."""
    path = tmp_path / "a.txt"
    path.write_bytes(PROSE * 99)
    return path


# The corpus and its splits.


def test_the_frozen_corpus_has_the_hash_in_the_code_and_the_licence_beside_it() -> None:
    assert frozen().name == FROZEN_HASH == Text().corpus
    assert FROZEN.stat().st_size < 700_000
    licence = FROZEN.with_name("LICENSE-python.txt").read_text(encoding="utf-8")
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in licence


def test_no_document_of_the_frozen_corpus_is_in_two_splits() -> None:
    parts = [set(text.tobytes().split(END)) for text in frozen().splits.values()]
    sizes = np.array([len(text) for text in frozen().splits.values()])

    assert len(set().union(*parts)) == sum(map(len, parts))
    assert min(map(len, parts)) > 50
    assert sizes / sizes.sum() == pytest.approx([0.8, 0.1, 0.1], abs=1e-3)


@settings(max_examples=50)
@given(st.dictionaries(names, contents, min_size=1, max_size=40))
def test_a_split_holds_every_byte_once_and_a_tenth_at_most_is_held_out(documents: dict[str, bytes]) -> None:
    parts = split(documents)
    total = sum(map(len, documents.values()))
    keys = [key for name in SPLITS for key in parts[name]]

    assert len(keys) == len(set(keys))
    # A large document stands in parts, "name#0000" and so on.
    whole = {key: text for name in SPLITS for key, text in sorted(parts[name].items())}
    joined = {
        name: b"".join(whole[key] for key in sorted(whole) if key.partition("#")[0] == name) for name in documents
    }
    assert joined == documents
    for name in ("validation", "test"):
        assert sum(map(len, parts[name].values())) <= total // 10


def test_many_documents_stay_whole_and_another_one_moves_few() -> None:
    documents = {f"{number}.txt": PROSE * (1 + number % 5) for number in range(200)}
    before, after = split(documents), split({**documents, "new.txt": PROSE})

    assert {key for name in SPLITS for key in before[name]} == set(documents)
    moved = [key for name in SPLITS for key in before[name] if key not in after[name]]
    assert len(moved) < 5


def test_the_hash_is_that_of_names_and_contents() -> None:
    documents = {"a": b"one", "b": b"two"}

    assert hash_of(documents) == hash_of(dict(reversed(documents.items())))
    others = ({"a": b"one", "c": b"two"}, {"a": b"onetwo", "b": b""}, {"ab": b"onetwo"}, {"a": b"one"})
    assert len({hash_of(documents), *map(hash_of, others)}) == 5


def test_a_file_is_read_again_when_it_changes_and_its_name_does_not_count(file: Path) -> None:
    before = Text(str(file)).corpus
    file = file.rename(file.with_name("b.txt"))

    assert Text(str(file)).corpus == before
    file.write_bytes(PROSE * 98 + PROSE.upper())
    os.utime(file, ns=(1, 1))
    assert Text(str(file)).corpus != before


def test_a_folder_is_its_visible_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    documents = {f"deep/{number}.md": PROSE * 5 + str(number).encode() for number in range(60)}
    for name, text in documents.items():
        (tmp_path / name).write_bytes(text)
    alone = Text(str(tmp_path)).corpus
    (tmp_path / ".hidden").write_bytes(b"\xff")
    (tmp_path / "empty.md").touch()

    assert Text(str(tmp_path)).corpus == alone == hash_of(documents)


def test_a_damaged_corpus_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_corpus, "FROZEN", tmp_path / "corpus.xz")
    for content, message in (
        (b"not compressed", "cannot read"),
        (lzma.compress(b'{"a": "b"}'), "has the hash sha256-"),
    ):
        (tmp_path / "corpus.xz").write_bytes(content)
        with pytest.raises(StoreError, match=message):
            frozen.__wrapped__()


# The task.


def test_windows_are_of_their_split_and_targets_are_the_next_bytes() -> None:
    task = Text()
    for name in SPLITS:
        inputs, targets = task.of_split(name).sample(np.random.default_rng(0), 8, 50)
        text = frozen().splits[name].tobytes()

        np.testing.assert_array_equal(inputs[:, 1:], targets[:, :-1])
        for row, last in zip(inputs, targets[:, -1], strict=True):
            assert bytes([*row, last]) in text


def test_the_path_and_the_split_are_in_no_options_and_the_hash_is(file: Path) -> None:
    task = Text(str(file))

    assert arguments_of(task) == arguments_of(task.of_split("test")) == {"corpus": corpus_at(str(file)).name}
    assert arguments_of(Text()) == {"corpus": FROZEN_HASH}


def test_more_than_is_read_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_corpus, "MOST_BYTES", 1000)
    with pytest.raises(UsageError, match="has 5,148 bytes; allowed: up to 1,000"):
        Text(str(file.parent))


def test_another_hash_than_was_asked_for_is_refused(file: Path) -> None:
    assert Text(str(file), corpus=Text(str(file)).corpus).corpus == Text(str(file)).corpus
    with pytest.raises(UsageError, match=r"that in '.*a\.txt' is 'sha256-.*put the old text back, or leave corpus out"):
        Text(str(file), corpus=FROZEN_HASH)
    with pytest.raises(UsageError, match=r"that of synthbench is 'sha256-.*as in text:path=notes"):
        Text(corpus=Text(str(file)).corpus)


def test_a_text_that_is_too_short_for_its_windows_is_refused(file: Path) -> None:
    file.write_bytes(PROSE * 10)
    with pytest.raises(
        UsageError, match=r"length of task 'text' is 128; allowed: 1 to 5\d, as split '.*text:length=32"
    ):
        sized("text", {"path": str(file)})
    # The hash is pinned before a worker reads.
    pinned = {"path": str(file), "corpus": Text(str(file)).corpus}
    assert sized("text", {"path": str(file), "length": "32"}) == (32, pinned)


# Reference lines and kinds.


def test_the_reference_lines_are_their_definitions() -> None:
    corpus = corpus_of({f"{number}": PROSE * 3 + str(number).encode() for number in range(100)})
    train, test = (corpus.splits[name].tolist() for name in ("train", "test"))
    counts, pairs, before = Counter(train), Counter(pairwise(train)), Counter(train[:-1])
    alone = {byte: (counts[byte] + 1) / (len(train) + 256) for byte in range(256)}
    after = [(pairs[last, byte] + alone[byte]) / (before[last] + 1) for last, byte in pairwise(test)]
    lines = reference_lines(corpus)

    assert lines["unigram"] == pytest.approx(-np.log2([alone[byte] for byte in test[1:]]).mean())
    assert lines["bigram"] == pytest.approx(-np.log2(after).mean())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME}]
    compressed = [len(lzma.compress(bytes(text), lzma.FORMAT_RAW, filters=filters)) for text in (train, train + test)]
    assert lines["lzma"] == 8 * (compressed[1] - compressed[0]) / len(test)
    assert lines["lzma"] < lines["bigram"] < lines["unigram"] < 8


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 3), min_size=7, max_size=7), min_size=1, max_size=4), st.integers(1, 7))
def test_repeats_are_those_of_a_plain_loop(rows: list[list[int]], context: int) -> None:
    expected = [
        [
            end + 1 >= context
            and any(
                row[end + 1 - context : end + 1] == row[at + 1 - context : at + 1] for at in range(context - 1, end)
            )
            for end in range(len(row))
        ]
        for row in rows
    ]
    np.testing.assert_array_equal(repeats(np.array(rows), context), expected)


def test_kinds_are_two_parts_of_all_positions_and_an_eighth_repeats() -> None:
    task = TASKS["text"]()
    inputs = task.of_split("test").sample(np.random.default_rng(0), 2048, 128).inputs
    kinds = task.kinds(inputs)

    assert set(kinds) == {"repeated", "other"}
    assert (kinds["repeated"] ^ kinds["other"]).all()
    assert not kinds["repeated"][:, :CONTEXT].any()
    assert 0.1 < kinds["repeated"].mean() < 0.14
