"""A row is complete and checksummed or absent, whatever happens to the writer, the disk or the file."""

import errno
import itertools
import os
import shutil
import tempfile
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from synthbench.errors import StoreError, UsageError
from synthbench.results import Store, published
from synthbench.results.maintenance import COUNTED
from synthbench.results.schema import row_sha256
from synthbench.results.store import Limits, collected, parts_of
from tests.results.rows import Row, make_row
from tests.results.stores import AT, CURVE, exact, failing, filled, listing, reader, word

# Writing and reading


def test_a_row_and_its_curve_come_back_as_written(root: Path) -> None:
    row = make_row()

    made = filled(root, [row | {"schema_version": 99, "row_sha256": "no", "curve_sha256": "no"}], CURVE)

    (back,) = reader(root).table().to_pylist()
    by_store = {"curve_sha256", "row_sha256"}
    assert {name: back[name] for name in row.keys() - by_store} == {name: row[name] for name in row.keys() - by_store}
    assert back["row_sha256"] == row_sha256(back)
    assert made.statuses() == {row["run_id"]: "ok"}
    assert made.find([row["run_id"], "0" * 16]) == {row["run_id"]: back}
    curve = reader(root).curves([row["run_id"]])
    assert curve["run_id"].unique().tolist() == [row["run_id"]]
    for name in ("step", "split", "metric", "wall_s", "tokens"):
        assert curve[name].tolist() == [point[name] for point in CURVE]
    np.testing.assert_array_equal(curve["value"].to_numpy(), np.array([point["value"] for point in CURVE], np.float32))


def test_nan_null_infinity_and_signed_zero_stay_apart(root: Path) -> None:
    values = [None, float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324]

    filled(root, [make_row(seed=seed, eval_loss=value) for seed, value in enumerate(values)]).compact()

    assert repr(reader(root).table()["eval_loss"].to_pylist()) == repr(values)
    assert reader(root).runs()["eval_loss"].isna().tolist() == [True, True, False, False, False, False, False]


def test_the_order_of_rows_does_not_depend_on_the_order_of_writing(tmp_path: Path) -> None:
    rows = [make_row(task=task, mech=mech, seed=seed) for task, mech, seed in itertools.product("ba", "yx", (10, 9))]

    store = filled(tmp_path / "one", rows, CURVE)
    other = Store.open(tmp_path / "other", create=True)
    other.write_all((row, CURVE) for row in rows[::-1])

    assert exact(store) == exact(other)
    keys = store.runs()[["task", "mech", "seed"]].to_numpy().tolist()
    assert keys == sorted(keys)
    columns = ("run_id", "status", "wall_s")
    assert store.columns(columns).equals(store.table().select(columns))


@pytest.mark.parametrize(
    ("row", "point", "message"),
    [
        ({"scor": 1.0}, {}, "no column called 'scor'; did you mean 'score'"),
        ({"run_id": "../../../etc/passwd"}, {}, "run_id is '../../../etc/passwd'; allowed: 16 hex digits"),
        ({"run_id": None}, {}, "run_id is None"),
        *(({"run_id": name}, {}, "16 hex digits") for name in ("0" * 15, "0" * 17, "ABCDEF0123456789", "0" * 15 + "/")),
        ({"status": "fine"}, {}, "column 'status' is 'fine'; allowed: one of ok, diverged"),
        ({}, {"run_id": "0" * 16}, "points of another run"),
        ({}, {"stepp": 1}, "did you mean 'step'"),
        ({}, {"value": None}, "column 'value'"),
    ],
)
def test_a_row_or_curve_that_does_not_fit_is_refused_with_its_job(
    root: Path, row: Row, point: Row, message: str
) -> None:
    made = Store.open(root, create=True)
    before = listing(root)

    with pytest.raises(UsageError) as refusal:
        made.write_all([(make_row(seed=1), CURVE), (make_row() | row, [CURVE[0] | point])])

    assert message in str(refusal.value)
    assert listing(root) == before


def test_a_job_is_a_file_of_curves_and_one_of_rows_all_on_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(root, create=True)
    store.write_all([])  # nothing is no file
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    store.write_all((make_row(seed=seed), CURVE if seed else []) for seed in range(5))

    assert len(synced) == 2 * 2  # two files and their folders
    (rows,), (curves,) = store.loose(), store.loose("curves")
    assert rows.name == curves.name
    assert len(reader(root).runs()) == pq.read_table(rows).num_rows == 5
    assert len(reader(root).curves()) == 4 * len(CURVE)


# Opening


def test_a_read_only_disk_is_noticed_when_the_store_is_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(root, [make_row()])

    # Permission bits would not stop root, so the refusal is injected where the kernel gives it.
    monkeypatch.setattr(tempfile, "TemporaryFile", failing(errno.EROFS))

    with pytest.raises(StoreError, match=r"cannot write .*: Read-only file system; \d+ MB free"):
        Store.open(root, create=True)
    assert len(reader(root).runs()) == 1


def test_reading_changes_nothing_on_the_disk(root: Path) -> None:
    rows = [make_row(seed=seed) for seed in range(3)]
    filled(root, rows[:2], CURVE).compact()
    filled(root, rows[2:], CURVE)
    (root / "runs" / f"job-{'0' * 16}.parquet").write_bytes(b"garbage")
    for folder in ("_tmp", "quarantine"):
        shutil.rmtree(root / folder)
    before = listing(root)

    store = reader(root)
    assert len(store.runs()) == len(store.statuses()) == 3
    assert len(store.curves()) == 3 * len(CURVE)

    assert listing(root) == before
    assert not (root / "_tmp").exists()
    assert [(report.is_moved, report.file) for report in store.quarantined] == [(False, f"runs/job-{'0' * 16}.parquet")]
    for act in (lambda: store.write_all([(rows[0], [])]), store.compact):
        with pytest.raises(StoreError, match="opened for reading"):
            act()


NO_DESCRIPTIONS = [b"{}", b"[]", b"", b"[" * 100_000, b"\xff\xfe\x00"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"format": 3}', "written by a newer synthbench: format 3"),
        *((b'{"format": %s}' % number, "allowed: 1 to 2") for number in (b'"1"', b"true", b"0")),
        *((text, "cannot be read as a store's description") for text in NO_DESCRIPTIONS),
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


def test_a_store_of_format_1_is_one_of_format_2_once_it_is_opened_for_writing(root: Path) -> None:
    root.mkdir()
    (root / "store.json").write_text('{"format": 1}')

    assert reader(root).statuses() == {}
    assert (root / "store.json").read_text() == '{"format": 1}'
    Store.open(root, create=True)
    assert '"format": 2' in (root / "store.json").read_text()


# Writers that die, writers that meet, and disks that refuse


@pytest.mark.parametrize("is_killed", [False, True], ids=["refused", "killed"])
@pytest.mark.parametrize("operation", ["fsync", "replace", "unlink"])
def test_whatever_fails_when_a_job_is_written_and_the_store_compacted_costs_no_row_or_curve(
    root: Path, tmp_path: Path, operation: str, *, is_killed: bool
) -> None:
    """Each call of the operation fails once, or is the last thing that the process does."""
    filled(root, [make_row(seed=0), make_row(seed=1)], CURVE).compact()
    filled(root, [make_row(seed=2)], CURVE)
    before = exact(reader(root))
    job = [(make_row(seed=seed), CURVE) for seed in (3, 4)]
    calls, genuine = itertools.count(1), getattr(os, operation)

    def act(copy: Path, last: int) -> None:
        calls = itertools.count(1)

        def fail(*arguments: object) -> object:
            if next(calls) != last:
                return genuine(*arguments)
            if is_killed:
                os._exit(9)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        setattr(os, operation, fail)
        try:
            store = Store.open(copy, create=True)
            store.write_all(job)
            store.compact()
        except StoreError as refusal:
            assert "No space left on device" in str(refusal)  # noqa: PT017 - in a process of its own
            os._exit(9)
        os._exit(0)

    for last in calls:
        copy = tmp_path / str(last)
        shutil.copytree(root, copy)
        process = get_context("fork").Process(target=act, args=(copy, last))
        process.start()
        process.join()
        survivor = Store.open(copy, create=True)
        rows, points = exact(survivor)
        assert len(rows) in (3, 5)  # the job is there, or it is not
        assert set(before[0]) <= set(rows)
        assert set(before[1]) <= set(points)
        assert len(points) == len(rows) * len(CURVE)
        survivor.compact()
        assert exact(survivor) == (rows, points)
        assert survivor.quarantined == []
        assert survivor.loose() == []
        if process.exitcode == 0:
            break
        assert process.exitcode == 9
    assert last > 3


# One run, one row


@pytest.mark.parametrize("is_backwards", [False, True])
def test_of_two_rows_of_a_run_the_one_that_finished_last_counts(root: Path, *, is_backwards: bool) -> None:
    first = make_row(status="error", score=None)
    delta = timedelta(seconds=-60 if is_backwards else 60)
    second = make_row(finished_at=first["finished_at"] + delta)
    made = filled(root, [first], CURVE[:2])
    made.compact()

    made.write_all([(second, CURVE)])

    expected = ("error", 2) if is_backwards else ("ok", len(CURVE))
    for _ in range(2):
        assert made.runs()["status"].tolist() == [expected[0]]
        assert made.find([first["run_id"]])[first["run_id"]]["status"] == expected[0]
        assert len(made.curves()) == expected[1]
        made.compact()
    assert made.quarantined == []


def test_a_curve_that_does_not_belong_to_its_row_is_left_out(root: Path) -> None:
    row = make_row()
    made = filled(root, [row], CURVE)
    other = filled(root.parent / "other", [row], CURVE[:2])
    shutil.copy(other.loose("curves")[0], made.loose("curves")[0])

    assert len(made.curves()) == 0
    assert [(report.file, report.is_moved) for report in made.quarantined] == [
        (f"curves/run-{row['run_id']}.parquet", False)
    ]
    assert len(made.runs()) == 1


# Compaction


def test_compaction_in_many_parts_changes_no_answer_and_happens_once(root: Path) -> None:
    limits = Limits(written_rows=3, batch_rows=2)
    made = filled(root, [make_row(seed=seed) for seed in range(6)], CURVE, limits)
    assert made.compact() == 12
    changed = zip((1, 7, 8), (None, float("nan"), 9.0), strict=True)
    filled(root, [make_row(seed=seed, eval_loss=loss) for seed, loss in changed], CURVE)
    before, compact = exact(made), listing(root / "compact")

    assert made.compact() == 6

    names = sorted(path.name.split("-")[0] for path in (root / "compact").iterdir())
    assert names == ["curves"] * 3 + ["runs"] * 3
    assert compact.items() <= listing(root / "compact").items()  # the committed store is append-only
    assert made.loose() == made.loose("curves") == []
    assert exact(made) == before
    after = listing(root)
    assert made.compact() == 0
    assert listing(root) == after


def test_what_is_held_of_a_row_to_list_a_store_is_small() -> None:
    listed = collected(parts_of(Store.open(published(), create=False), COUNTED, "values"))

    assert listed.nbytes / listed.num_rows < 200  # two million, after a compaction that was killed: less than 2 GB


def test_a_store_is_compacted_by_itself_once_it_has_more_loose_files(root: Path) -> None:
    made = filled(root, [make_row(seed=seed) for seed in range(3)])

    assert made.tidy(most_loose=3) == 0
    with FileLock(root / "_tmp" / "compact.lock"):
        assert made.tidy(most_loose=2) == 0  # another process does it
    assert made.tidy(most_loose=2) == 3
    assert len(made.runs()) == 3


def test_a_file_that_is_merged_between_listing_and_reading_loses_no_row(root: Path) -> None:
    made = filled(root, [make_row(seed=seed) for seed in range(2)], CURVE)

    for kind in ("runs", "curves"):
        files = made.files_of(kind)
        first = next(files)
        made.compact()
        seen = [first, *files]
        assert [(path.parent.name, path.exists()) for path in seen] == [(kind, False), (kind, False), ("compact", True)]
        made = filled(root.parent / "again", [make_row(seed=seed) for seed in range(2)], CURVE)


def test_a_compact_file_that_reads_back_otherwise_deletes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled(root, [make_row(seed=seed) for seed in range(2)], CURVE)
    before = listing(root)
    other = filled(root.parent / "other", [make_row(seed=3)], CURVE).loose("curves")[0]
    monkeypatch.setattr(os, "replace", lambda _source, target: shutil.copy(other, target))

    with pytest.raises(StoreError, match="did not read back as it was written; nothing was deleted"):
        made.compact()

    assert before.items() <= listing(root).items()
    assert list((root / "compact").iterdir()) == []


def test_packaged_rows_that_are_read_unchecked_would_pass_every_check() -> None:
    store = Store.open(published(), create=False)

    assert store.table().equals(store.table(is_checked=True))
    assert store.quarantined == []


# Rows that were run again are marked beside them, and rows of another store come in unchanged


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path / "results", [make_row(seed=seed) for seed in (42, 43)], CURVE)


def test_a_verified_row_says_who_and_keeps_its_name_and_checksum(store: Store) -> None:
    before = store.table().to_pylist()
    store.verify([word(before[0])])
    after = store.table().to_pylist()

    assert after[0]["verified_by"] == "somebody (bitwise, synthbench 1.0, 2026-02-03)"
    assert after[1] == before[1]
    assert after[0] | {"verified_by": None} == before[0]
    assert store.quarantined == []


def test_a_word_on_a_row_that_has_changed_since_is_no_word(store: Store) -> None:
    store.verify([word(store.table().to_pylist()[0])])
    store.write_all([(make_row(seed=42, n_params=7, finished_at=AT), CURVE)])

    assert store.table()["verified_by"].to_pylist() == [None, None]


def test_the_later_word_counts_and_compacting_keeps_it(store: Store) -> None:
    rows = store.table().to_pylist()
    store.verify([word(row, verified_by="later", verified_at=AT + timedelta(days=1)) for row in rows])
    store.verify([word(row) for row in rows])
    before = store.table()
    store.compact()

    assert store.table().equals(before)
    assert all(said.startswith("later") for said in before["verified_by"].to_pylist())  # its word counts


@pytest.mark.parametrize("change", [{"verdict": "trust me"}, {"verified_by": None}, {"verified_at": None}])
def test_a_verification_that_does_not_fit_is_refused(store: Store, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(change))):
        store.verify([word(store.table().to_pylist()[0], **change)])
    assert store.table()["verified_by"].to_pylist() == [None, None]


def test_adopted_rows_and_curves_are_unchanged_and_unverified(store: Store, tmp_path: Path) -> None:
    expected = store.table()
    store.verify([word(row) for row in expected.to_pylist()])
    target = Store.open(tmp_path / "target", create=True)

    assert target.import_rows(store, expected["run_id"].to_pylist()[:1]) == 1
    assert target.import_rows(store) == 1
    assert target.table().equals(expected)
    assert exact(target)[1] == exact(store)[1]
    files = sorted((target.root / "compact").iterdir())
    assert target.import_rows(store) == store.import_rows(store) == 0
    assert sorted((target.root / "compact").iterdir()) == files
