"""Archives of what was measured: few, small, and the smallest things first."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks import archive as archives
from benchmarks.archive import archive
from synthbench.results import Store
from tests.results.rows import make_row

UNIT = 2**16
"""A sixteenth of an archive."""


@pytest.fixture(autouse=True)
def _small_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 16 * UNIT)
    monkeypatch.setattr(archives, "_CAPACITY", 16 * UNIT - UNIT // 4)


def write(file: Path, num_bytes: int) -> None:
    """Bytes that no compression makes fewer."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(np.random.default_rng(num_bytes).bytes(num_bytes))


def names_in(file: Path) -> set[str]:
    with tarfile.open(file) as opened:
        return set(opened.getnames())


def test_archives_are_no_larger_than_allowed_and_hold_everything(tmp_path: Path) -> None:
    for number, size in enumerate((1, 7, 9, 15, 2)):
        write(tmp_path / "card" / f"{number}.parquet", size * UNIT)

    done = archive(tmp_path / "card", tmp_path / "archives")

    assert not done.left_out
    assert sorted(done.files) == sorted((tmp_path / "archives").iterdir())
    assert all(file.stat().st_size <= archives.MAX_BYTES for file in done.files)
    held = [name for file in done.files for name in names_in(file)]
    assert sorted(held) == [f"card/{number}.parquet" for number in range(5)]


def test_what_does_not_fit_is_named_and_is_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_FILES", 2)
    for name, size in {"huge": 17, "large": 15, "middle": 14, "small": 9}.items():
        write(tmp_path / "card" / f"{name}.parquet", size * UNIT)

    done = archive(tmp_path / "card", tmp_path)

    assert done.left_out == {"large.parquet": "0.9 MiB do not fit", "huge.parquet": "1.1 MiB do not fit"}
    assert [names_in(file) for file in done.files] == [{"card/small.parquet"}, {"card/middle.parquet"}]


def test_a_store_is_compacted_and_stays_in_one_piece(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "card" / "paper", create=True)
    for seed in range(3):
        store.write_all([(make_row(seed=seed), [])])
    (store.root / "quarantine").mkdir(exist_ok=True)
    write(store.root / "quarantine" / "bad.parquet", 10)

    (file,) = archive(tmp_path / "card", tmp_path / "archives").files

    rows, facts = sorted(names_in(file))
    assert facts == "card/paper/store.json"
    assert rows.startswith("card/paper/compact/runs-")


def test_older_archives_are_replaced(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "card" / f"{number}.parquet", 10 * UNIT)
    assert len(archive(tmp_path / "card", tmp_path / "card").files) == 3
    for number in (1, 2):
        (tmp_path / "card" / f"{number}.parquet").unlink()
    (tmp_path / "card" / "card-of-mine.tar.gz").touch()

    archive(tmp_path / "card", tmp_path / "card")

    assert sorted(file.name for file in (tmp_path / "card").glob("*.gz*")) == ["card-1.tar.gz", "card-of-mine.tar.gz"]
    assert names_in(tmp_path / "card" / "card-1.tar.gz") == {"card/0.parquet"}


def test_a_store_that_cannot_be_read_is_named_and_the_rest_is_archived(tmp_path: Path) -> None:
    write(tmp_path / "card" / "scaling.parquet", 10)
    (tmp_path / "card" / "paper").mkdir()
    (tmp_path / "card" / "paper" / "store.json").write_text('{"format": 99}')

    done = archive(tmp_path / "card", tmp_path)

    assert list(done.left_out) == ["paper"]
    assert names_in(done.files[0]) == {"card/scaling.parquet"}
