"""Stores of every version that ever wrote one are read as they were meant; a newer one is refused."""

import shutil
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from synthbench.errors import StoreError
from synthbench.results import RUNS, SCHEMA_VERSION, Store
from synthbench.results.maintenance import examine
from synthbench.results.migration import LAST_BY_SUITE
from synthbench.results.schema import RUN_COLUMNS
from synthbench.trust.merge import merge

STORES = Path(__file__).parents[1] / "golden" / "stores"
OLDER = sorted(path.name for path in STORES.glob("*-*"))
"""``<schema>-<commit>``: written with the code of that commit by ``tests/golden/stores/write.py``, in their order."""
LATEST = next((name for name in OLDER if name.startswith(f"{SCHEMA_VERSION}-")), "none yet")


def columns_of(root: Path) -> dict[str, object]:
    """The columns that the writer of a store knew, with their types, from the file of its single row."""
    (path,) = (root / "runs").iterdir()
    return {field.name: field.type for field in pq.read_schema(path)}


@pytest.mark.parametrize("name", OLDER)
def test_an_older_store_reads_with_nulls_for_what_its_writer_did_not_know_until_it_is_compacted_or_merged(
    name: str, tmp_path: Path
) -> None:
    older = shutil.copytree(STORES / name, tmp_path / name)
    store = Store.open(older, create=False)
    unknown = [column for column in RUNS.names if column not in columns_of(older) and column != "migrated_from"]
    is_older = [int(name.partition("-")[0]) <= LAST_BY_SUITE] * 3

    rows = store.table()

    assert store.quarantined == []
    assert rows["status"].to_pylist() == ["ok", "error", "ok"]
    assert rows["score"].to_pylist() == [0.75, None, 0.75]
    assert rows["error_message"].to_pylist() == [None, "é | <b> =1+1", None]
    assert all(rows[column].null_count == 3 for column in unknown)
    assert [former is not None for former in rows["migrated_from"].to_pylist()] == is_older
    assert store.curves()["run_id"].nunique() == 2
    assert examine(store, is_repairing=False) == []

    writable = Store.open(older, create=True)
    assert writable.compact() == 2
    merged = merge(Store.open(tmp_path / "ours", create=True), older)

    assert writable.table().equals(rows)
    assert writable.loose() == []
    assert len(list((older / "compact").glob("runs-*"))) == 2
    assert (merged.num_new, merged.left_out) == (3, {})


def test_there_is_a_store_of_the_present_columns() -> None:
    # A column that is added needs a higher SCHEMA_VERSION, so that an older program says what it meets, and a store
    # here that was written with it.
    assert columns_of(STORES / LATEST) == {column.name: column.arrow_type for column in RUN_COLUMNS}


def test_a_newer_store_is_refused_whole_and_left_as_it_is(tmp_path: Path) -> None:
    newer = shutil.copytree(STORES / "99", tmp_path / "store")
    before = {path: path.read_bytes() for path in newer.rglob("*.parquet")}
    for create in (False, True):
        store = Store.open(newer, create=create)
        for read in (store.table, store.curves, store.statuses, partial(examine, store, is_repairing=create)):
            with pytest.raises(StoreError, match="written by a newer synthbench: schema 99") as refusal:
                read()
            assert refusal.value.exit_code == 3
    with pytest.raises(StoreError, match="schema 99"):
        merge(Store.open(tmp_path / "ours", create=True), newer)

    assert {path: path.read_bytes() for path in newer.rglob("*.parquet")} == before
