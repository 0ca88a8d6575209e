"""A row is complete and checksummed or absent, whatever happens to the writer, the disk or the file."""

import errno
import itertools
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from synthbench.errors import StoreError, UsageError
from synthbench.results import RUNS, SCHEMA_VERSION, Store, files, reading, store
from synthbench.results.schema import RUN_COLUMNS, row_sha256, run_id, table_of

MakeRow = Callable[..., dict[str, Any]]
Row = dict[str, Any]

CURVE = [
    {"step": step, "split": split, "metric": "loss", "value": value, "wall_s": 0.5 * step, "tokens": 64 * step}
    for step, value in ((10, 2.5), (20, float("nan")), (30, float("inf")))
    for split in ("train", "validation")
]


def write_rows(root: Path, row: Row, seeds: range, last_call: int, log: Path) -> None:
    """Write the row with each seed, and note those that are done; end as if killed at some rename."""
    calls, genuine = itertools.count(1), os.replace
    os.replace = lambda *names: os._exit(9) if next(calls) == last_call else genuine(*names)
    store = Store.open(root, create=True)
    for seed in seeds:
        store.write(row | {"seed": seed, "run_id": run_id({"seed": seed})}, CURVE)
        with log.open("a") as notes:
            notes.write(f"{seed}\n")


@pytest.fixture
def spawn(root: Path, tmp_path: Path, make_row: MakeRow) -> Callable[..., tuple[BaseProcess, Path]]:
    """Begin a process that writes rows; its log."""
    Store.open(root, create=True)

    def begin(first: int, stop: int, last_call: int = 0) -> tuple[BaseProcess, Path]:
        log = tmp_path / f"{first}.log"
        log.touch()
        arguments = (root, make_row(), range(first, stop), last_call, log)
        writer = get_context("fork").Process(target=write_rows, args=arguments)
        writer.start()
        return writer, log

    return begin


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "results"


def filled(root: Path, rows: Sequence[Row], curve: Sequence[Mapping[str, Any]] = ()) -> Store:
    made = Store.open(root, create=True)
    for row in rows:
        made.write(row, curve)
    return made


def reader(root: Path) -> Store:
    return Store.open(root, create=False)


def run_file(root: Path, row: Row) -> Path:
    return root / "runs" / f"run-{row['run_id']}.parquet"


def listing(root: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def exact(table: pa.Table) -> list[str]:
    """Rows as text, so that NaN equals NaN and differs from null."""
    return [repr(row) for row in table.to_pylist()]


def forge(path: Path, rows: Sequence[Row], *, schema: pa.Schema = RUNS, version: int = SCHEMA_VERSION) -> None:
    """Write a file as another synthbench, or a stranger, might have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows), schema=schema)
    with pq.ParquetWriter(path, schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"synthbench.schema_version": str(version)})


def signed(row: Row) -> Row:
    return row | {"row_sha256": row_sha256(row)}


# Writing and reading


def test_a_row_and_its_curve_come_back_as_written(root: Path, make_row: MakeRow) -> None:
    row = make_row()

    made = filled(root, [row | {"schema_version": 99, "row_sha256": "no", "curve_sha256": "no"}], CURVE)

    (back,) = reader(root).table().to_pylist()
    filled_by_store = {"curve_sha256", "row_sha256"}
    assert {name: back[name] for name in row.keys() - filled_by_store} == {
        name: row[name] for name in row.keys() - filled_by_store
    }
    assert back["row_sha256"] == row_sha256(back)
    assert set(made.statuses()) == {row["run_id"]}
    assert made.statuses() == {row["run_id"]: "ok"}
    curve = reader(root).curves()
    assert curve["run_id"].unique().tolist() == [row["run_id"]]
    for name in ("step", "split", "metric", "wall_s", "tokens"):
        assert curve[name].tolist() == [point[name] for point in CURVE]
    np.testing.assert_array_equal(curve["value"].to_numpy(), np.array([point["value"] for point in CURVE], np.float32))


def test_nan_null_infinity_and_signed_zero_stay_apart(root: Path, make_row: MakeRow) -> None:
    values = [None, float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324]

    filled(root, [make_row(seed=seed, eval_loss=value) for seed, value in enumerate(values)])

    assert repr(reader(root).table()["eval_loss"].to_pylist()) == repr(values)
    assert reader(root).runs()["eval_loss"].isna().tolist() == [True, True, False, False, False, False, False]


def test_an_empty_store_has_no_rows_but_all_columns(root: Path) -> None:
    made = Store.open(root, create=True)

    assert set(made.statuses()) == set()
    assert made.runs().columns.tolist() == RUNS.names
    assert len(made.curves()) == 0
    assert made.compact() == 0


def test_the_order_of_rows_does_not_depend_on_the_order_of_writing(tmp_path: Path, make_row: MakeRow) -> None:
    rows = [make_row(task=task, mech=mech, seed=seed) for task, mech, seed in itertools.product("ba", "yx", (10, 9))]

    filled(tmp_path / "one", rows, CURVE)
    filled(tmp_path / "other", rows[::-1], CURVE)

    store, other = reader(tmp_path / "one"), reader(tmp_path / "other")
    assert exact(store.table()) == exact(other.table())
    assert store.curves().equals(other.curves())
    keys = store.runs()[["task", "mech", "seed"]].to_numpy().tolist()
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("row", "point", "message"),
    [
        ({"scor": 1.0}, {}, "no column called 'scor'; did you mean 'score'"),
        ({"run_id": "../../../etc/passwd"}, {}, "run_id is '../../../etc/passwd'; allowed: 16 hex digits"),
        ({"run_id": None}, {}, "run_id is None"),
        ({"status": "fine"}, {}, "column 'status' is 'fine'; allowed: one of ok, diverged"),
        ({}, {"run_id": "0" * 16}, "points of another run"),
        ({}, {"stepp": 1}, "did you mean 'step'"),
        ({}, {"value": None}, "column 'value'"),
    ],
)
def test_a_row_or_curve_that_does_not_fit_is_refused_and_leaves_nothing(
    root: Path, make_row: MakeRow, row: Row, point: Row, message: str
) -> None:
    Store.open(root, create=True)
    before = listing(root)
    made = Store.open(root, create=True)  # which keeps the store.json

    with pytest.raises(UsageError) as refusal:
        made.write(make_row() | row, [CURVE[0] | point])

    assert message in str(refusal.value)
    assert listing(root) == before


# Opening


def test_there_is_no_store_to_read_where_none_was_made(root: Path) -> None:
    with pytest.raises(StoreError, match="no such folder"):
        reader(root)
    root.mkdir()
    with pytest.raises(StoreError, match=r"it has no store\.json") as refusal:
        reader(root)
    assert refusal.value.exit_code == 3
    assert list(root.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()

    for path, create in itertools.product((blocker, blocker / "below"), (True, False)):
        with pytest.raises(StoreError) as refusal:
            Store.open(path, create=create)
        assert refusal.value.exit_code == 3
        assert "\n" not in str(refusal.value)


def test_a_read_only_disk_is_noticed_when_the_store_is_opened(
    root: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(root, [make_row()])

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    # Permission bits would not stop root, so the refusal is injected where the kernel gives it.
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)

    with pytest.raises(StoreError, match=r"cannot write .*: Read-only file system; \d+ MB free"):
        Store.open(root, create=True)
    assert len(reader(root).runs()) == 1


def test_reading_changes_nothing_on_the_disk(root: Path, make_row: MakeRow) -> None:
    rows = [make_row(seed=seed) for seed in range(3)]
    filled(root, rows[:2], CURVE).compact()
    filled(root, rows[2:], CURVE)
    run_file(root, make_row(seed=7)).write_bytes(b"garbage")
    for folder in ("_tmp", "quarantine"):
        shutil.rmtree(root / folder, ignore_errors=True)
    before = listing(root)

    store_to_read = reader(root)
    assert len(store_to_read.runs()) == 3
    assert len(store_to_read.curves()) == 3 * len(CURVE)
    assert len(store_to_read.statuses()) == 3

    assert listing(root) == before
    assert not (root / "_tmp").exists()
    assert [(report.is_moved, report.file) for report in store_to_read.quarantined] == [
        (False, f"runs/run-{make_row(seed=7)['run_id']}.parquet")
    ]
    for act in (lambda: store_to_read.write(rows[0], []), store_to_read.compact):
        with pytest.raises(StoreError, match="opened for reading"):
            act()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"format": 2}', "written by a newer synthbench: format 2"),
        (b'{"format": "1"}', "allowed: 1"),
        (b'{"format": true}', "allowed: 1"),
        (b'{"format": 0}', "allowed: 1"),
        (b"{}", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_a_store_json_from_the_future_or_from_nowhere_is_refused(root: Path, text: bytes, message: str) -> None:
    root.mkdir()
    (root / "store.json").write_bytes(text)

    for create in (True, False):
        with pytest.raises(StoreError, match=message) as refusal:
            Store.open(root, create=create)
        assert refusal.value.exit_code == 3
        assert [path.name for path in root.iterdir()] == ["store.json"]


# Writers that die, and writers that meet


def test_writers_that_are_killed_lose_only_the_row_in_flight(
    root: Path, spawn: Callable[..., tuple[BaseProcess, Path]]
) -> None:
    rng = np.random.default_rng(0)
    writers = [spawn(10_000 * number, 10_000 * (number + 1)) for number in range(3)]
    for writer, log in writers:
        while not log.stat().st_size:
            time.sleep(0.01)
        writer.join(timeout=rng.uniform(0.05, 0.2))
        writer.kill()
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
    # The last note may be cut.
    committed = [int(line) for _, log in writers for line in log.read_text().splitlines(keepends=True) if "\n" in line]

    survivor = Store.open(root, create=True)
    seeds = survivor.runs()["seed"].tolist()

    assert survivor.quarantined == []
    assert set(committed) <= set(seeds)
    # A row may have been committed in the moment between its rename and its announcement.
    assert len(seeds) <= len(committed) + len(writers)
    assert len(survivor.curves()) == len(seeds) * len(CURVE)


@pytest.mark.parametrize(("call", "left"), [(1, 0), (2, 1)])
def test_a_kill_before_a_rename_leaves_no_visible_row(
    root: Path, spawn: Callable[..., tuple[BaseProcess, Path]], call: int, left: int
) -> None:
    writer, _ = spawn(0, 1, last_call=call)
    writer.join()

    assert writer.exitcode == 9
    assert len(list((root / "_tmp").glob("*.partial"))) == 1
    assert len(list((root / "curves").iterdir())) == left
    survivor = reader(root)
    assert set(survivor.statuses()) == set()
    assert len(survivor.runs()) == len(survivor.curves()) == 0
    assert survivor.quarantined == []


def test_partial_files_are_removed_once_they_are_old(root: Path) -> None:
    made = Store.open(root, create=True)
    fresh, stale = root / "_tmp" / "fresh.partial", root / "_tmp" / "stale.partial"
    for path in (fresh, stale):
        path.touch()
    os.utime(stale, (0, 0))

    made.compact()

    assert fresh.exists()
    assert not stale.exists()


def test_a_disk_that_fills_at_the_fsync_leaves_nothing(
    root: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(root, [make_row(seed=1)], CURVE)
    before = listing(root)

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match=r"No space left on device; \d+ MB free"):
        made.write(make_row(seed=2), CURVE)
    with pytest.raises(StoreError, match="No space left on device"):
        made.compact()

    assert listing(root) == before


def test_runs_that_are_written_together_are_the_same_files_and_all_on_the_disk(
    root: Path, tmp_path: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [(make_row(seed=seed), CURVE if seed else []) for seed in range(5)]
    one_by_one, together = (Store.open(path, create=True) for path in (tmp_path / "other", root))
    for row, curve in runs:
        one_by_one.write(row, curve)
    synced: list[int] = []
    renamed: list[str] = []
    genuine = os.replace

    def replace(source: Path, target: Path) -> None:
        renamed.append(target.parent.name)
        genuine(source, target)

    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(os, "replace", replace)
    together.write_all(runs)

    assert len(synced) == 5 + 4 + 2  # rows, curves and their two folders
    assert renamed == ["curves"] * 4 + ["runs"] * 5
    (together_files, one_by_one_files) = (
        {name: content for name, (_, content) in listing(path).items()} for path in (root, tmp_path / "other")
    )
    assert together_files == one_by_one_files
    assert len(reader(root).runs()) == 5
    assert len(reader(root).curves()) == 4 * len(CURVE)


def test_where_the_disk_fills_none_of_the_runs_that_are_written_together_is_half_there(
    root: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Store.open(root, create=True)
    calls, genuine = itertools.count(1), os.replace

    def refuse(source: Path, target: Path) -> None:
        if next(calls) == 9:  # a row, after all of the curves
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        genuine(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StoreError, match="No space left on device"):
        made.write_all([(make_row(seed=seed), CURVE) for seed in range(6)])

    assert list((root / "_tmp").glob("*.partial")) == []
    assert 0 < len(reader(root).runs()) < 6
    assert len(reader(root).curves()) == len(reader(root).runs()) * len(CURVE)


def test_a_run_that_does_not_fit_the_schema_keeps_those_beside_it_out(root: Path, make_row: MakeRow) -> None:
    made = Store.open(root, create=True)
    with pytest.raises(UsageError, match="status"):
        made.write_all([(make_row(seed=1), CURVE), (make_row(seed=2, status="fine"), CURVE)])

    assert list((root / "runs").iterdir()) == list((root / "curves").iterdir()) == []


def test_two_writers_of_the_same_plan_make_each_row_once(
    root: Path, spawn: Callable[..., tuple[BaseProcess, Path]]
) -> None:
    for writer, _ in (spawn(0, 20), spawn(10, 30)):
        writer.join()
        assert writer.exitcode == 0

    survivor = reader(root)

    assert survivor.runs()["seed"].tolist() == list(range(30))
    assert set(survivor.statuses()) == {run_id({"seed": seed}) for seed in range(30)}
    assert len(survivor.curves()) == 30 * len(CURVE)
    assert survivor.quarantined == []


# Files that cannot be trusted


@pytest.mark.parametrize(
    ("content", "kind"), [(b"", "runs"), (b"garbage" * 100, "curves"), (b"PAR1" + bytes(5000) + b"PAR1", "runs")]
)
def test_a_file_that_is_not_parquet_is_moved_and_counted(
    root: Path, make_row: MakeRow, content: bytes, kind: str
) -> None:
    good, bad = make_row(seed=1), make_row(seed=2)
    made = filled(root, [good, bad], CURVE)
    path = root / kind / f"run-{bad['run_id']}.parquet"
    path.write_bytes(content)

    assert set(made.curves()["run_id"]) == {good["run_id"]}

    assert made.quarantined[0].file == f"{kind}/{path.name}"
    assert made.quarantined[0].is_moved
    assert not path.exists()
    (exhibit,) = (root / "quarantine").iterdir()
    assert exhibit.read_bytes() == content
    assert set(made.statuses()) == ({good["run_id"]} if kind == "runs" else {good["run_id"], bad["run_id"]})


def test_a_file_cut_at_any_length_is_never_read(root: Path, make_row: MakeRow) -> None:
    row = make_row()
    filled(root, [row])
    path = run_file(root, row)
    content = path.read_bytes()

    for length in range(0, len(content), len(content) // 15):
        path.write_bytes(content[:length])
        survivor = reader(root)
        assert len(survivor.table()) == 0
        assert len(survivor.quarantined) == 1


@pytest.mark.parametrize("kind", ["runs", "curves", "compact"])
def test_a_flipped_bit_costs_rows_or_curves_but_alters_none(root: Path, make_row: MakeRow, kind: str) -> None:
    rows = [make_row(seed=seed) for seed in range(3 if kind == "compact" else 1)]
    made = filled(root, rows, CURVE if kind == "curves" else ())
    if kind == "compact":
        made.compact()
    (path,) = (root / kind).iterdir()
    content = path.read_bytes()

    def read(store: Store) -> list[str]:
        return exact(store.table()) if kind != "curves" else [repr(point) for point in store.curves().values.tolist()]

    intact = read(made)
    rng = np.random.default_rng(0)
    outcomes = []
    num_data = len(content) - 8 - int.from_bytes(content[-8:-4], "little")  # what is before the footer
    for offset in (*rng.choice(num_data, size=25, replace=False), *rng.integers(num_data, len(content), size=10)):
        flipped = bytearray(content)
        flipped[offset] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        survivor = reader(root)
        seen = read(survivor)
        assert set(seen) <= set(intact)
        assert kind == "compact" or seen in ([], intact)
        assert (seen == intact) == (not survivor.quarantined)
        outcomes.append(seen == intact)

    assert not all(outcomes)


def test_one_bad_row_in_a_compact_file_does_not_cost_the_others(root: Path, make_row: MakeRow) -> None:
    rows = [make_row(seed=seed) for seed in range(3)]
    rows[1]["score"] = 0.99
    made = Store.open(root, create=True)
    forge(root / "compact" / f"runs-{'0' * 16}.parquet", rows)

    assert made.runs()["seed"].tolist() == [0, 2]
    assert set(made.statuses()) == {rows[0]["run_id"], rows[2]["run_id"]}
    assert [report.is_moved for report in made.quarantined] == [False]

    made.compact()
    assert len(list((root / "quarantine").iterdir())) == 1
    fresh = reader(root)
    assert fresh.runs()["seed"].tolist() == [0, 2]
    assert fresh.quarantined == []


def test_a_file_under_another_name_than_its_row_is_set_aside(root: Path, make_row: MakeRow) -> None:
    made = filled(root, [make_row()])
    shutil.copy(run_file(root, make_row()), root / "runs" / f"run-{'0' * 16}.parquet")
    shutil.copy(run_file(root, make_row()), root / "runs" / "mine.parquet")
    shutil.copy(run_file(root, make_row()), root / "compact" / "mine.parquet")

    assert len(made.runs()) == 1
    assert {report.file for report in made.quarantined} == {
        "runs/mine.parquet",
        "compact/mine.parquet",
        f"runs/run-{'0' * 16}.parquet",
    }
    assert all(report.is_moved for report in made.quarantined)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("metrics", '"' + "x" * 2**20 + '"', "more than 1048576 bytes"),
        ("metrics", "{", "column 'metrics'"),
        ("mech", "<script>", "column 'mech'"),
        ("run_id", "../../../x", "allowed: 16 hex digits"),
    ],
)
def test_a_hostile_row_is_set_aside_although_its_checksum_holds(
    root: Path, make_row: MakeRow, name: str, value: str, reason: str
) -> None:
    row = signed(make_row() | {name: value})
    made = Store.open(root, create=True)
    forge(root / "runs" / f"run-{'0' * 16}.parquet", [row])
    forge(root / "compact" / f"runs-{'0' * 16}.parquet", [row])

    assert made.statuses() == {}
    assert len(made.runs()) == 0
    assert len(made.quarantined) == 2
    assert all(reason in report.reason for report in made.quarantined)


def test_a_file_that_claims_more_than_its_place_allows_is_not_read(
    root: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_row()
    made = Store.open(root, create=True)
    forge(run_file(root, row), [row, row])
    assert len(made.runs()) == 0
    assert made.quarantined[-1].reason.startswith("it claims 2 rows")

    forge(run_file(root, row), [row | {"error_message": "x" * 2**18}])
    monkeypatch.setattr(files, "MAX_SMALL_BYTES", 2**17)
    assert len(made.runs()) == 0
    assert made.quarantined[-1].reason.startswith("it claims 1 rows")

    run_file(root, row).write_bytes(bytes(2**17 + 1))
    assert len(made.runs()) == 0
    assert made.quarantined[-1].reason == "it has 131073 bytes"


def test_a_text_that_a_small_file_holds_once_is_not_unfolded_a_thousand_times(
    root: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_COMPACT_BYTES", 2**24)
    made = Store.open(root, create=True)
    path = root / "compact" / f"runs-{'0' * 16}.parquet"
    many = table_of(RUN_COLUMNS, [make_row(error_message="x" * 2**16)] * 2**9)
    with pq.ParquetWriter(path, RUNS) as writer:
        writer.write_table(many)
        writer.add_key_value_metadata({"synthbench.schema_version": str(SCHEMA_VERSION)})
    assert path.stat().st_size < 2**18

    assert len(made.runs()) == 0
    assert made.quarantined[0].reason == "it unfolds to more than 16777216 bytes"


def test_a_file_with_foreign_doubled_or_mistyped_columns_is_set_aside(root: Path, make_row: MakeRow) -> None:
    row = make_row()
    made = Store.open(root, create=True)
    seed = RUNS.get_field_index("seed")
    for schema, reason in [
        (RUNS.append(pa.field("extra", pa.string())), "unknown columns: extra"),
        (RUNS.set(seed, pa.field("seed", pa.int32())), "column seed is int32, not int64"),
        (RUNS.remove(seed), "lacks the column seed"),
    ]:
        forge(run_file(root, row), [row], schema=schema)
        assert len(made.runs()) == 0
        assert reason in made.quarantined[-1].reason


# Versions


def test_an_older_row_reads_with_nulls_where_its_writer_knew_no_column(root: Path, make_row: MakeRow) -> None:
    row = make_row(flops_estimate=None) | {"schema_version": 0}
    older = RUNS.remove(RUNS.get_field_index("flops_estimate"))
    made = Store.open(root, create=True)
    forge(run_file(root, row), [signed(row)], schema=older, version=0)

    assert made.table()["flops_estimate"].to_pylist() == [None]
    before = exact(made.table())
    made.compact()
    assert exact(reader(root).table()) == before
    assert made.quarantined == []


@pytest.mark.parametrize("place", ["runs/run-{}.parquet", "compact/runs-{}.parquet"])
def test_a_newer_row_stops_the_reader(root: Path, make_row: MakeRow, place: str) -> None:
    row = make_row() | {"schema_version": 99}
    made = filled(root, [make_row(seed=1)])
    path = root / place.format(row["run_id"])
    forge(path, [signed(row)], schema=RUNS.append(pa.field("invented_later", pa.string())), version=99)

    for read in (made.runs, made.table, made.curves, made.statuses, made.compact):
        with pytest.raises(StoreError, match="written by a newer synthbench: schema 99") as refusal:
            read()
        assert refusal.value.exit_code == 3
    assert path.exists()


@pytest.mark.parametrize(("in_footer", "in_row"), [(99, 1), (1, 99)])
def test_a_version_that_only_footer_or_row_claims_is_damage(
    root: Path, make_row: MakeRow, in_footer: int, in_row: int
) -> None:
    row = make_row() | {"schema_version": in_row}
    made = Store.open(root, create=True)
    forge(run_file(root, row), [signed(row)], version=in_footer)

    assert len(made.runs()) == 0
    assert made.quarantined[0].reason == "footer and rows disagree about the schema"


# One run, one row


@pytest.mark.parametrize("is_backwards", [False, True])
def test_of_two_rows_of_a_run_the_one_that_finished_last_counts(
    root: Path, make_row: MakeRow, *, is_backwards: bool
) -> None:
    first = make_row(status="error", score=None)
    delta = timedelta(seconds=-60 if is_backwards else 60)
    second = make_row(finished_at=first["finished_at"] + delta)
    made = filled(root, [first], CURVE[:2])
    made.compact()

    made.write(second, CURVE)

    expected = ("error", 2) if is_backwards else ("ok", len(CURVE))
    assert made.runs()["status"].tolist() == [expected[0]]
    assert len(made.curves()) == expected[1]
    made.compact()
    assert made.runs()["status"].tolist() == [expected[0]]
    assert len(made.curves()) == expected[1]
    assert made.quarantined == []


def test_a_curve_that_does_not_belong_to_its_row_is_left_out(root: Path, make_row: MakeRow) -> None:
    row = make_row()
    made = filled(root, [row], CURVE)
    other = filled(root.parent / "other", [row], CURVE[:2])
    name = f"curves/run-{row['run_id']}.parquet"
    shutil.copy(other.root / name, root / name)

    assert len(made.curves()) == 0
    assert [(report.file, report.is_moved) for report in made.quarantined] == [(name, False)]
    assert len(made.runs()) == 1


# Compaction


def test_compaction_in_many_parts_changes_no_answer_and_happens_once(
    root: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(root, [make_row(seed=seed) for seed in range(6)], CURVE)
    made.compact()
    changed = zip((1, 7, 8), (None, float("nan"), 9.0), strict=True)
    filled(root, [make_row(seed=seed, eval_loss=loss) for seed, loss in changed], CURVE)
    rows, curves, statuses = exact(made.table()), made.curves(), made.statuses()
    for module, name, size in (
        *((module, "FILE_ROWS", 3) for module in (files, store)),
        *((files, "FILE_POINTS", 2 * len(CURVE)), (reading, "BATCH_POINTS", 4)),
    ):
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(files.File.batches, "__kwdefaults__", {"num_rows": 2})

    assert made.compact() == 6

    names = sorted(path.name.split("-")[0] for path in (root / "compact").iterdir())
    assert names == ["curves"] * 5 + ["runs"] * 3
    assert list((root / "runs").iterdir()) == list((root / "curves").iterdir()) == []
    assert exact(made.table()) == rows
    assert made.curves().equals(curves)
    assert made.statuses() == statuses
    before = listing(root)
    assert made.compact() == 0
    assert listing(root) == before


def test_compaction_does_not_depend_on_how_the_rows_came(tmp_path: Path, make_row: MakeRow) -> None:
    rows = [make_row(seed=seed) for seed in range(4)]
    at_once = filled(tmp_path / "one", rows, CURVE)
    at_once.compact()

    in_parts = filled(tmp_path / "other", rows[2:], CURVE)
    in_parts.compact()
    filled(in_parts.root, rows[:2], CURVE).compact()

    contents = [
        {path.name: path.read_bytes() for path in (made.root / "compact").iterdir()} for made in (at_once, in_parts)
    ]
    assert contents[0] == contents[1]


def test_a_reader_that_sees_both_forms_counts_each_row_once(tmp_path: Path, make_row: MakeRow) -> None:
    made = filled(tmp_path / "one", [make_row(seed=seed) for seed in range(3)], CURVE)
    table, curves = exact(made.table()), made.curves()
    copy = tmp_path / "copy"
    shutil.copytree(made.root, copy)
    made.compact()
    # What a compaction leaves that is killed before it deletes.
    shutil.copytree(made.root / "compact", copy / "compact", dirs_exist_ok=True)

    both = Store.open(copy, create=True)

    assert exact(both.table()) == table
    assert both.curves().equals(curves)
    assert both.compact() == 6
    assert exact(both.table()) == table


def test_readers_miss_no_row_while_the_store_is_compacted(root: Path, make_row: MakeRow) -> None:
    rows = [make_row(seed=seed) for seed in range(8)]
    made = filled(root, rows[:2], CURVE)
    first = {row["run_id"] for row in rows[:2]}
    is_done = threading.Event()
    missed: list[str] = []
    num_reads = 0

    def read() -> None:
        nonlocal num_reads
        while not is_done.is_set():
            for seen in (set(reader(root).statuses()), set(reader(root).curves()["run_id"])):
                missed.extend(first - seen)
            num_reads += 1

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for row in rows[2:]:
            made.write(row, CURVE)
            made.compact()
    finally:
        is_done.set()
        thread.join()

    assert num_reads > 0
    assert missed == []
    assert len(made.statuses()) == len(rows)


def test_a_compact_file_that_vanishes_between_listing_and_reading_loses_no_row(
    root: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(root, [make_row(seed=0)], CURVE).compact()
    genuine = files.read
    is_first = True

    def compact_then_read(path: Path) -> object:
        nonlocal is_first
        if is_first:
            is_first = False
            filled(root, [make_row(seed=1)], CURVE).compact()
        return genuine(path)

    monkeypatch.setattr(files, "read", compact_then_read)

    assert reader(root).runs()["seed"].tolist() == [0, 1]
    assert not is_first


def test_a_compact_file_that_reads_back_differently_deletes_nothing(
    root: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(root, [make_row(seed=seed) for seed in range(2)], CURVE)
    before = listing(root)
    genuine = files.encode
    monkeypatch.setattr(files, "encode", lambda kind, table: genuine(kind, table.slice(0, table.num_rows - 1)))

    with pytest.raises(StoreError, match="did not read back as it was written; nothing was deleted"):
        made.compact()

    assert listing(root) == before


def test_two_compactions_at_once_are_refused(root: Path, make_row: MakeRow) -> None:
    made = filled(root, [make_row()])

    with FileLock(root / "_tmp" / "compact.lock"), pytest.raises(StoreError, match="another process is compacting"):
        made.compact()

    assert made.compact() == 1


def test_other_tools_read_the_files_as_they_are(root: Path, make_row: MakeRow) -> None:
    rows = [make_row(seed=seed) for seed in range(2)]
    made = filled(root, rows)
    (root / "_tmp" / "half.partial").write_bytes(b"half")

    assert sorted(pq.read_table(root / "runs")["seed"].to_pylist()) == [0, 1]
    made.compact()
    (path,) = (root / "compact").iterdir()
    assert pq.read_table(path)["seed"].to_pylist() == [0, 1]
    assert pq.read_table(path).schema.names == table_of(RUN_COLUMNS, rows).schema.names
