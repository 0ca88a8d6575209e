"""A quick look at a store must see what a thorough one sees, whatever happened to its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from synthbench.results import Store, reading
from synthbench.results.schema import row_sha256

MakeRow = Callable[..., dict[str, Any]]
COLUMNS = ("run_id", "status", "wall_s")


@pytest.fixture
def compacted(make_row: MakeRow, tmp_path: Path) -> Store:
    """Four rows in one file, one of them also alone and newer, and one that is only alone."""
    store = Store.open(tmp_path / "store", create=True)
    for seed in range(4):
        store.write(make_row(seed=seed, wall_s=float(seed)), [])
    store.compact()
    newer = make_row(seed=3)["finished_at"].replace(year=2030)
    store.write(make_row(seed=3, wall_s=33.0, finished_at=newer), [])
    store.write(make_row(seed=4, wall_s=4.0), [])
    return store


def test_an_outline_is_some_columns_of_the_table(compacted: Store) -> None:
    outline = compacted.outline(COLUMNS)

    assert outline.equals(compacted.table().select(COLUMNS))
    assert sorted(outline["wall_s"].to_pylist()) == [0.0, 1.0, 2.0, 4.0, 33.0]


def test_rows_that_lie_as_they_were_written_are_not_checked_again(
    compacted: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []

    def remember(row: dict[str, Any]) -> str:
        hashed.append(row["seed"])
        return row_sha256(row)

    monkeypatch.setattr(reading, "row_sha256", remember)
    compacted.outline(COLUMNS)

    assert sorted(hashed) == [3, 4]


def test_a_file_that_was_changed_is_checked_row_by_row(compacted: Store) -> None:
    (path,) = compacted.root.joinpath("compact").glob("runs-*.parquet")
    content = path.read_bytes()
    seen = set()
    for place in range(100, len(content), len(content) // 20):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        store = Store.open(compacted.root, create=False)
        statuses = store.statuses()
        assert statuses.keys() == set(store.table()["run_id"].to_pylist())
        seen.add(len(statuses))

    assert 2 in seen  # a flip that left nothing of the file
    assert max(seen) <= 5
