"""A store's content is listed as it is, damage is found, and rows that count are never deleted."""

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from synthbench.errors import StoreError
from synthbench.results import Store
from synthbench.results.maintenance import collect, examine
from synthbench.trust.bundle import opened
from tests.cli.commands import Command
from tests.results.rows import make_row
from tests.results.stores import CURVE, exact, filled, forge, listing, reader, written


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three rows: two in compact files, the third in files of its own."""
    made = filled(tmp_path / "results", [make_row(seed=seed) for seed in (1, 2)], CURVE)
    made.compact()
    made.write_all([(make_row(seed=3, task="reverse"), CURVE)])
    return made


def reopened(store: Store) -> Store:
    return Store.open(store.root, create=True)


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


# What is broken


@pytest.mark.parametrize("kind", ["runs", "curves"])
def test_a_damaged_file_is_found_and_after_a_repair_made_again(store: Store, kind: str, synthbench: Command) -> None:
    row = make_row(seed=3, task="reverse")
    (path,) = store.loose(kind)
    assert synthbench("store", "doctor").returncode == 0
    damage(path)
    assert synthbench("store", "doctor").returncode == 1
    before = listing(store.root)

    broken = examine(reader(store.root), is_repairing=False)
    assert listing(store.root) == before
    assert f"{kind}/{path.name}" in [fault.what for fault in broken]
    assert not any(fault.is_repaired for fault in broken)

    assert synthbench("store", "doctor", "--repair").returncode == 0
    assert row["run_id"] not in reopened(store).statuses()
    assert len(list((store.root / "quarantine").iterdir())) >= 1
    assert examine(reader(store.root), is_repairing=False) == []
    assert len(reopened(store).runs()) == 2

    store.write_all([(row, CURVE)])
    assert len(reopened(store).runs()) == 3


@pytest.mark.parametrize("name", [f"runs/job-{'0' * 16}.parquet", f"compact/runs-{'0' * 16}.parquet"])
def test_a_row_that_is_damaged_among_others_is_taken_out_alone(store: Store, name: str) -> None:
    forge(store.root / name, [make_row(seed=9), make_row(seed=1) | {"eval_loss": 0.125}])

    assert [(fault.what, fault.is_repaired) for fault in examine(reader(store.root), is_repairing=False)] == [
        (name, False)
    ]
    broken = examine(reopened(store), is_repairing=True)

    assert {(fault.what, fault.is_repaired) for fault in broken} == {(name, True)}
    assert examine(reader(store.root), is_repairing=False) == []
    assert reader(store.root).table()["seed"].to_pylist() == [1, 2, 9, 3]
    assert len(list((store.root / "quarantine").iterdir())) == 1


def test_what_cannot_be_moved_is_not_repaired(store: Store) -> None:
    (damaged,) = store.loose()
    damage(damaged)
    opened_for_writing = reopened(store)
    (store.root / "quarantine").rmdir()
    (store.root / "quarantine").touch()

    broken = examine(opened_for_writing, is_repairing=True)

    assert [(fault.what, fault.is_repaired) for fault in broken] == [(f"runs/{damaged.name}", False)]


def test_rows_without_their_curve_are_kept_in_quarantine(store: Store) -> None:
    store.loose("curves")[0].unlink()
    before = exact(reader(store.root))

    examine(reopened(store), is_repairing=True)

    (kept,) = (store.root / "quarantine").iterdir()
    copy = store.root.parent / "rows.parquet"
    shutil.copy(kept, copy)
    with opened(copy) as (read, _):
        assert read.runs()["task"].tolist() == ["reverse"]
    after = exact(reader(store.root))
    assert (after[0], after[1]) == (before[0][:2], before[1])


# What nobody needs


def test_leftovers_are_named_and_then_deleted(store: Store, synthbench: Command) -> None:
    for path in store.root.rglob("*.parquet"):
        os.utime(path, (0, 0))  # old files that are needed stay
    first = make_row(seed=1)
    # The same row in a loose file too; an older row of a run whose newer one counts; curves whose rows never came.
    again = written(store, first)
    older = written(store, make_row(seed=2, finished_at=first["finished_at"] - timedelta(days=1)))
    orphan, young = (written(store, make_row(seed=seed)) for seed in (8, 9))
    for path in (orphan, young):
        path.unlink()
    old_half, young_half = store.root / "_tmp" / "old.partial", store.root / "_tmp" / "young.partial"
    logs = store.root / "logs"
    logs.mkdir()
    for path in (old_half, young_half, logs / "silent.log", logs / "said.log"):
        path.write_bytes(b"" if path.stem == "silent" else b"half")
    for path in (old_half, logs / "silent.log", logs / "said.log", store.root / "curves" / orphan.name):
        os.utime(path, (0, 0))
    expected = {
        "_tmp/old.partial",
        "logs/silent.log",
        f"runs/{again.name}",
        f"runs/{older.name}",
        f"curves/{orphan.name}",
    }
    before, content = listing(store.root), exact(store)

    named = json.loads(synthbench("store", "gc", "--dry-run", "--json").stdout)
    assert {leftover["file"] for leftover in named} == expected
    assert listing(store.root) == before
    assert synthbench("store", "gc").returncode == 0

    assert listing(store.root).keys() == before.keys() - expected
    assert exact(store) == content


def test_a_file_that_a_process_holds_open_is_in_use_however_old(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []

    def look(_fd: int) -> None:
        for half in (store.root / "_tmp").glob("*.partial"):
            os.utime(half, (0, 0))
            found.append(collect(reopened(store), is_dry=False))

    monkeypatch.setattr(os, "fsync", look)
    store.commit(b"half", store.root / "runs" / "x")

    assert found == [[]]


def test_nothing_is_deleted_while_the_store_is_compacted(store: Store) -> None:
    with store.alone(), pytest.raises(StoreError, match="another process is compacting"):
        collect(reopened(store), is_dry=False)
