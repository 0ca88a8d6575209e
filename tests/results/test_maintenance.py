"""What a store holds is said as it is; what is broken is found; what counts is never deleted."""

import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from synthbench.results.folder import Folder

from synthbench.errors import StoreError
from synthbench.results import Store
from synthbench.results.maintenance import collect, contents, examine
from synthbench.trust.bundle import opened

MakeRow = Callable[..., dict[str, Any]]

CURVE = [
    {"step": step, "split": "train", "metric": "loss", "value": 1 / step, "wall_s": 0.5 * step, "tokens": 64 * step}
    for step in (1, 2, 3)
]


@pytest.fixture
def store(tmp_path: Path, make_row: MakeRow) -> Store:
    """Three rows: two in compact files, the third in files of its own."""
    made = Store.open(tmp_path / "results", create=True)
    for seed in (1, 2):
        made.write(make_row(seed=seed), CURVE)
    made.compact()
    made.write(make_row(seed=3, task="reverse"), CURVE)
    return made


def reopened(store: Store, *, create: bool = True) -> Store:
    return Store.open(store.root, create=create)


def files(store: Store) -> set[str]:
    files = (path for path in store.root.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(store.root).as_posix() for path in files}


def aged(path: Path) -> Path:
    os.utime(path, (0, 0))
    return path


def small(store: Store, kind: str, row: dict[str, Any]) -> Path:
    return store.root / kind / f"run-{row['run_id']}.parquet"


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)


# What it holds


def test_contents_count_rows_and_files(store: Store, make_row: MakeRow) -> None:
    store.write(make_row(seed=4, status="oom", score=None), [])
    (store.root / "_tmp" / "half.partial").write_bytes(b"half")
    small(store, "runs", make_row(seed=9)).write_bytes(b"garbage")
    read = reopened(store, create=False)

    held = contents(read, read.table())

    assert held.num_rows == 4
    by = {(group.of, group.name): group for group in held.groups}
    assert (by["task", "copy"].rows, by["task", "copy"].statuses) == (3, {"ok": 2, "oom": 1})
    assert by["task", "reverse"].rows == by["suite", "paper"].rows - 3 == 1
    assert by["suite", "paper"].version == "2026.1"
    places = {place.place: place for place in held.places}
    assert {name: place.files for name, place in places.items() if name != "_tmp"} == {
        "runs": 3,
        "curves": 1,
        "compact": 2,
    }
    assert places["runs"].bytes == sum(path.stat().st_size for path in (store.root / "runs").iterdir())
    assert [report.file for report in held.left_out] == [f"runs/run-{make_row(seed=9)['run_id']}.parquet"]


# What is broken


@pytest.mark.parametrize("kind", ["runs", "curves"])
def test_a_damaged_file_is_found_and_after_a_repair_made_again(store: Store, make_row: MakeRow, kind: str) -> None:
    row = make_row(seed=3, task="reverse")
    flip(small(store, kind, row))
    before = files(store)

    broken = examine(reopened(store, create=False), is_repairing=False)
    assert files(store) == before
    assert f"{kind}/run-{row['run_id']}.parquet" in [fault.what for fault in broken]
    assert not any(fault.is_repaired for fault in broken)

    assert all(fault.is_repaired for fault in examine(reopened(store), is_repairing=True))
    assert row["run_id"] not in reopened(store).statuses()
    assert len(list((store.root / "quarantine").iterdir())) >= 1
    assert examine(reopened(store, create=False), is_repairing=False) == []
    assert len(reopened(store).runs()) == 2

    store.write(row, CURVE)
    assert len(reopened(store).runs()) == 3


def test_a_row_that_is_damaged_among_others_is_one_thing_that_is_broken_and_repaired(store: Store) -> None:
    rows = store.table()
    place = rows.schema.get_field_index("eval_loss")
    forged = rows.set_column(place, rows.schema.field(place), pa.array([0.125] * len(rows), pa.float64()))
    path = store.folder.commit_compact("runs", forged.slice(0, 1))
    assert path is not None

    broken = examine(reopened(store), is_repairing=True)

    assert [(fault.what, fault.is_repaired) for fault in broken] == [(f"compact/{path.name}", True)]
    assert examine(reopened(store, create=False), is_repairing=False) == []
    assert reopened(store).table().equals(rows)


def test_what_cannot_be_moved_is_not_repaired(store: Store, make_row: MakeRow) -> None:
    damaged = small(store, "runs", make_row(seed=3, task="reverse"))
    flip(damaged)
    (store.root / "quarantine").touch()  # where the folder would be

    broken = examine(reopened(store), is_repairing=True)

    assert [(fault.what, fault.is_repaired) for fault in broken] == [(f"runs/{damaged.name}", False)]


def test_rows_without_their_curve_are_kept_in_quarantine(store: Store, make_row: MakeRow) -> None:
    small(store, "curves", make_row(seed=3, task="reverse")).unlink()

    examine(reopened(store), is_repairing=True)

    (kept,) = (store.root / "quarantine").iterdir()
    copy = store.root.parent / "rows.parquet"
    shutil.copy(kept, copy)
    with opened(copy) as (read, _):
        assert read.runs()["task"].tolist() == ["reverse"]


# What nobody needs


def test_what_is_needed_is_not_deleted(store: Store) -> None:
    for path in store.root.rglob("*.parquet"):
        aged(path)
    before, table, curves = files(store), store.table(), store.curves()

    assert collect(reopened(store), is_dry=False) == []

    assert files(store) == before
    assert store.table().equals(table)
    assert store.curves().equals(curves)


def test_leftovers_are_named_and_then_deleted(store: Store, make_row: MakeRow) -> None:
    first, orphan, young = make_row(seed=1), make_row(seed=8), make_row(seed=9)
    # The same row in a small file too; an older row of a run whose newer one counts; a curve whose row never came.
    store.write(first, CURVE)
    store.write(make_row(seed=2, finished_at=first["finished_at"] - timedelta(days=1)), [])
    for row in (orphan, young):
        store.write(row, CURVE)
        small(store, "runs", row).unlink()
    old_half, young_half = store.root / "_tmp" / "old.partial", store.root / "_tmp" / "young.partial"
    for path in (old_half, young_half):
        path.write_bytes(b"half")
    for path in (old_half, small(store, "curves", orphan)):
        aged(path)
    expected = {
        "_tmp/old.partial",
        f"runs/run-{first['run_id']}.parquet",
        f"runs/run-{make_row(seed=2)['run_id']}.parquet",
        f"curves/run-{orphan['run_id']}.parquet",
    }
    before, table, curves = files(store), store.table(), store.curves()

    assert {leftover.file for leftover in collect(reopened(store, create=False), is_dry=True)} == expected
    assert files(store) == before
    assert {leftover.file for leftover in collect(reopened(store), is_dry=False)} == expected

    assert files(store) == before - expected
    assert store.table().equals(table)
    assert store.curves().equals(curves)


def test_a_file_that_a_process_holds_open_is_in_use_however_old(store: Store) -> None:
    processes = get_context("fork")
    is_writing = processes.Event()

    def pause(fd: object) -> None:  # noqa: ARG001 - as os.fsync calls it
        is_writing.set()
        time.sleep(60)

    def write() -> None:
        os.fsync = pause
        Folder(store.root, is_writable=True).commit(b"half", store.root / "runs" / "x")

    writer = processes.Process(target=write)
    writer.start()
    is_writing.wait()
    (half,) = (store.root / "_tmp").glob("*.partial")
    aged(half)
    assert collect(reopened(store), is_dry=False) == []
    writer.kill()
    writer.join()
    assert [leftover.file for leftover in collect(reopened(store), is_dry=False)] == [f"_tmp/{half.name}"]


def test_nothing_is_deleted_while_the_store_is_compacted(store: Store) -> None:
    with store.folder.alone(), pytest.raises(StoreError, match="another process is compacting"):
        collect(reopened(store), is_dry=False)
