"""Rows and stores of former schemas are read as they were meant, and lose nothing; a newer store is refused."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthbench.canonical import canonical_json
from synthbench.errors import StoreError
from synthbench.results import RUNS, SCHEMA_VERSION, Store
from synthbench.results.maintenance import collect, examine
from synthbench.results.migration import LAST_BY_SUITE, former, migrated
from synthbench.results.schema import CURVES, RUN_COLUMNS, curve_sha256, row_sha256, run_id
from synthbench.trust import replan
from synthbench.trust.audit import digest, faults
from synthbench.trust.merge import merge
from synthbench.trust.verify import Sampling, verify
from tests.results.rows import Row, make_row, refused
from tests.results.stores import CURVE, forge, hash_named, signed

STORE = Path(__file__).parents[1] / "golden" / "stores" / "by_suite"
"""Four rows of the committed store as they were under schemas 3 and 4, one of them run again by a colleague. The two of
``paper`` had been migrated once before."""


@pytest.fixture
def older(tmp_path: Path) -> Store:
    shutil.copytree(STORE, tmp_path / "older")
    return Store.open(tmp_path / "older", create=True)


@pytest.fixture
def rows(older: Store) -> list[Row]:
    found: list[Row] = older.table().to_pylist()
    return found


@pytest.mark.end_to_end
def test_a_migrated_row_has_the_id_that_the_same_run_has_now(rows: list[Row]) -> None:
    assert sorted(row["suite"] for row in rows) == ["climb", "climb.extra", "paper", "paper"]
    for row in rows:
        if row["task"] != "palindrome":  # a later version by now
            assert replan.check([row]) == ({}, [])  # the code writes this configuration, so this id
        assert run_id(json.loads(row["config_json"])) == row["run_id"] != row["migrated_from"].split(":")[1]


def test_what_the_row_was_can_be_had_again_to_the_last_bit(rows: list[Row]) -> None:
    for row in rows:
        before = former(row)
        assert before is not None
        assert json.loads(before["config_json"])["suite"] == row["suite"]
        assert f"{before['schema_version']}:{before['run_id']}:{row_sha256(before)}" == row["migrated_from"].split()[0]
        assert (before["migrated_from"] is None) == (row["suite"] != "paper")
        assert faults(row, datetime.now(UTC)) == []


def test_curves_and_verifications_go_with_their_rows(older: Store, rows: list[Row]) -> None:
    assert set(older.curves()["run_id"]) == {row["run_id"] for row in rows}
    assert set(older.curves([rows[1]["run_id"]])["run_id"]) == {rows[1]["run_id"]}
    assert [row["verified_by"] for row in rows if row["verified_by"]] == [
        "a colleague (bitwise, synthbench 0.1.0.dev0, 2026-11-20)"
    ]
    assert older.statuses() == {row["run_id"]: "ok" for row in rows}
    assert older.quarantined == []


def test_compaction_writes_what_reading_gives_and_the_digest_stays(older: Store, rows: list[Row]) -> None:
    curves = older.curves()
    before = digest([former(row) or {} for row in rows])

    (copy := Store.open(older.root.parent / "copy", create=True)).import_rows(older)

    assert copy.table().to_pylist() == [row | {"verified_by": None} for row in rows]
    (path,) = (copy.root / "compact").glob("runs-*")
    assert pq.read_table(path)["schema_version"].unique().to_pylist() == [5]
    assert older.curves().equals(curves)
    assert digest(rows) == before


def test_nobody_gets_the_verification_or_the_digest_of_another_row(older: Store, rows: list[Row]) -> None:
    (verified,) = (row for row in rows if row["verified_by"])
    forged = {
        **verified, "score": 1.0, "verified_by": None, "finished_at": verified["finished_at"] + timedelta(seconds=1)
    }  # fmt: skip
    older.write_all([(forged, [])])

    found = {row["run_id"]: row for row in older.table().to_pylist()}[verified["run_id"]]
    assert (found["score"], found["verified_by"]) == (1.0, None)
    assert digest([found]) != digest([verified])


@pytest.mark.parametrize(("change", "message"), refused("migrated"))
def test_a_row_that_is_not_what_it_was_migrated_from_is_named(rows: list[Row], change: Row, message: str) -> None:
    assert [fault for fault in faults(rows[0] | change, datetime.now(UTC)) if message in fault]


def of_suite(row: Row, suite: str, **changes: Any) -> Row:
    """A row of schema 4 whose id hashes the name of its suite."""
    config = {"seed": row["seed"], "mech": "slay", "suite": suite, "suite_version": row["suite_version"]}
    changed = row | {"mech": "slay", "suite": suite, "schema_version": 4, "migrated_from": None, "curve_sha256": None}
    changed |= {"config_json": canonical_json(config), "run_id": run_id(config), "config_hash": run_id(config)}
    changed |= changes
    return changed | {"row_sha256": row_sha256(changed)}


def test_of_two_suites_that_made_one_run_a_failure_replaces_no_result(tmp_path: Path) -> None:
    ok = of_suite(make_row(), "smoke")
    failed = of_suite(
        make_row(), "smoke.extra", status="error", error_type="ValueError", score=None, skill=None, n_correct=None,
        finished_at=ok["finished_at"] + timedelta(hours=1),
    )  # fmt: skip
    store = Store.open(tmp_path / "store", create=True)
    for row in (ok, failed):
        points = pa.Table.from_pylist([{"run_id": row["run_id"], **CURVE[0]}], schema=CURVES)
        row["curve_sha256"] = curve_sha256(points.to_pydict())
        name = f"run-{row['run_id']}.parquet"
        os.utime(forge(store.root / "curves" / name, points), (0, 0))
        forge(store.root / "runs" / name, [signed(row)])

    assert ok["run_id"] != failed["run_id"]
    assert list(store.statuses().values()) == ["ok"]
    assert collect(store, is_dry=False) == []
    store.compact()
    assert list(store.statuses().values()) == ["ok"]
    assert [pq.read_table(kept)["status"].to_pylist() for kept in store.loose()] == [["error"]]
    assert store.curves().shape[0] == 1


@pytest.mark.parametrize("text", ["{", "1" * 5000])
def test_a_hostile_file_of_old_rows_is_no_traceback(tmp_path: Path, text: str) -> None:
    row = of_suite(make_row(), "smoke") | {"config_json": text}
    row["row_sha256"] = row_sha256(row)
    store = Store.open(hash_named(tmp_path / "store", [row, row]).root, create=True)

    for read in (store.statuses, store.table, lambda: store.columns(["score"])):
        read()
    assert len(store.statuses()) <= 1


def test_what_no_writer_wrote_keeps_its_name() -> None:
    texts = ["[]", '{"mech": "slay"}', '{"a":1e999}', '{"mech":["slay"]}']
    made = [make_row(seed=seed) | {"schema_version": 4, "config_json": text} for seed, text in enumerate(texts)]

    found = migrated(pa.Table.from_pylist(made, schema=RUNS)).to_pylist()
    of_now = pa.Table.from_pylist([make_row()], schema=RUNS)

    assert migrated(of_now) is of_now
    assert [row["run_id"] for row in found] == [row["run_id"] for row in made]
    assert [row["config_json"] for row in found] == texts


@pytest.mark.end_to_end
def test_verify_says_what_it_could_check_of_older_rows(older: Store, rows: list[Row], tmp_path: Path) -> None:
    (first,) = (row["run_id"] for row in rows if (row["suite"], row["mech"]) == ("paper", "linear"))
    alone = Store.open(tmp_path / "alone", create=True)
    alone.import_rows(older, [first])

    found = verify(alone, Sampling(device="cpu", workers=0))

    assert found.faults == []
    assert "rows written under an older schema: 1, each matches its original" in found.notes


def test_a_row_of_another_source_of_the_same_version_is_not_refused_for_its_words(rows: list[Row]) -> None:
    row = next(row for row in rows if row["mech"] == "slay")
    renamed = row | {"mech_code_hash": "0" * 12, "mech_label": "As it was called then"}

    assert replan.check([renamed]) == ({}, [])


# Stores of every version


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
