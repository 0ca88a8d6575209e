"""Damage to the bytes of a store never alters a row or curve silently; and nothing in it is ever run."""

import errno
import fcntl
import os
import pickle
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

import synthbench
from synthbench.errors import StoreError
from synthbench.results import RUNS, Store
from synthbench.runner.run import run
from tests.cli.commands import Need
from tests.faults.drivers import Driver, twelve_rows
from tests.results.rows import later, make_row
from tests.results.stores import CURVE, exact, failing, filled, forge, reader, word
from tests.runner.runs import lasting, tiny

pytestmark = pytest.mark.end_to_end

KINDS = ("runs", "curves", "compact/runs", "compact/curves", "verified")

Edit = tuple[str, float, int]
"""Damage: its kind, place (as a fraction of the file) and number."""


class Files(dict[str, bytes]):
    """Content by path in the store."""

    def __repr__(self) -> str:
        return f"<{len(self)} files>"  # else a failure prints them all


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of a store of six rows with curves: two compact files, two loose ones; one row is verified."""
    root = tmp_path_factory.mktemp("whole") / "results"
    for seeds in ((0, 1), (2, 3)):
        filled(root, [make_row(seed=seed) for seed in seeds], CURVE).compact()
    store = filled(root, [make_row(seed=seed) for seed in (4, 5)], CURVE)
    store.verify([word(store.table().to_pylist()[0])])
    return Files({path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()})


def read(files: dict[str, bytes]) -> tuple[list[str], list[str], int]:
    """Rows, points of curves, and how many files or rows were reported as bad, of a store with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        store = reader(Path(folder))
        return *exact(store), len(store.quarantined)


def edited(content: bytes, edits: Sequence[Edit], other: bytes) -> bytes:
    """A file after some accidents."""
    damaged = bytearray(content)
    for kind, place, number in edits:
        offset = int(place * len(damaged))
        if kind == "flip" and offset < len(damaged):
            damaged[offset] ^= 1 << number % 8
        elif kind == "overwrite":
            damaged[offset : offset + number] = bytes(min(number, len(damaged) - offset))
        elif kind == "cut":
            del damaged[offset:]
        elif kind == "drop":
            del damaged[offset : offset + number]
        elif kind == "insert":
            damaged[offset:offset] = number.to_bytes(2, "big") * number
        elif kind == "mix":
            damaged[offset:] = other[offset:]
    return bytes(damaged)


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "flip", "flip", "overwrite", "cut", "drop", "insert", "mix"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 300),
    ),
    min_size=1,
    max_size=4,
)


@given(kind=st.sampled_from(KINDS), edits=EDITS)
@example(kind="runs", edits=[("cut", 0.0, 1)])
@example(kind="runs", edits=[("mix", 0.0, 1)])
@example(kind="compact/runs", edits=[("mix", 0.0, 1)])
@example(kind="verified", edits=[("cut", 0.9, 1)])
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_costs_rows_that_are_counted_and_alters_none(whole: Files, kind: str, edits: list[Edit]) -> None:
    rows, points, _ = read(whole)
    name, *others = sorted(name for name in whole if name.startswith(kind))
    damaged = edited(whole[name], edits, whole[others[0] if others else name])

    rows_read, of_curves, num_reported = read({**whole, name: damaged})

    # Who verified a row stands beside it, and is lost with the file that says so.
    unverified = {row.replace("'somebody (bitwise, synthbench 1.0, 2026-02-03)'", "None") for row in rows}
    assert set(rows_read) <= set(rows) | unverified
    assert set(of_curves) <= set(points)
    is_intact = (rows_read, of_curves) == (rows, points)
    assert is_intact or num_reported
    event(f"{kind}: {'intact' if is_intact else 'noticed'}")


SET_BACK = """
import datetime as genuine, itertools, time, synthbench.runner.worker, synthbench.runner.rows
calls = itertools.count(1)
class Clock(genuine.datetime):
    @classmethod
    def now(cls, zone=None):
        return genuine.datetime.now(zone) - genuine.timedelta(hours=next(calls))
synthbench.runner.worker.datetime = synthbench.runner.rows.datetime = Clock
time.time = lambda: Clock.now(genuine.UTC).timestamp()
"""
"""Python after which every look at the wall clock of a driver is an hour before the last one."""


def test_a_clock_set_back_makes_one_row_and_no_negative_time(driver: Driver, undisturbed: Path, tmp_path: Path) -> None:
    assert driver.run(twelve_rows(tmp_path), SET_BACK) == 0

    rows = reader(tmp_path).runs()
    assert (rows["finished_at"] < rows["started_at"]).all(), "the fault was there"
    assert rows["wall_s"].between(0, 100).all()
    assert (rows[["queue_s", "train_s", "eval_s", "data_s"]] >= 0).all(axis=None)
    assert lasting(tmp_path) == lasting(undisturbed)


def test_a_row_made_again_replaces_one_of_a_clock_that_was_ahead(tmp_path: Path) -> None:
    asked = tiny(tmp_path, tasks=("copy:length=8",), steps=1, executor="inline")
    run(asked)
    filled(tmp_path, (later(row, 3 * 24 * 3600) for row in reader(tmp_path).table().to_pylist())).compact()
    before = reader(tmp_path).runs()
    run(replace(asked, rerun="all"))

    after = reader(tmp_path).runs()
    assert set(after["run_id"]) == set(before["run_id"])
    assert not set(after["row_sha256"]) & set(before["row_sha256"]), "an old row still counts"


class Bomb:
    """Raise if anything unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a store was unpickled",)


def test_what_a_store_carries_is_never_unpickled(tmp_path: Path) -> None:
    """Arrow knows a type that is unpickled when its schema is read; here a column of a row claims to be one."""
    row = make_row()
    Store.open(tmp_path, create=True)
    bomb = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": pickle.dumps(Bomb())}
    place = RUNS.get_field_index("os")
    schema = RUNS.set(place, pa.field("os", pa.string(), metadata=bomb)).with_metadata(
        {b"pandas": pickle.dumps(Bomb())}
    )
    carrying = pa.Table.from_pylist([row], schema=RUNS).cast(schema)
    forge(tmp_path / "runs" / f"job-{'1' * 16}.parquet", carrying, version=1)
    (tmp_path / "runs" / "job-0123456789abcdef.parquet").write_bytes(pickle.dumps(Bomb()))

    store = reader(tmp_path)

    assert len(store.runs()) <= 1
    assert "runs/job-0123456789abcdef.parquet" in {report.file for report in store.quarantined}


UNPICKLING = re.compile(
    r"^\s*(import|from) (pickle|cPickle|dill|cloudpickle|joblib|shelve|marshal)\b"
    r"|\b(torch|numpy|np|yaml)\.load\b|\.read_pickle\b|(?<![\w.])(eval|exec)\(",
    re.MULTILINE,
)
"""Source that imports what unpickles, or calls what evaluates or may unpickle."""


def test_no_module_unpickles_or_evaluates_but_the_one_that_runs_plugins() -> None:
    """Worker processes talk in pickles with their driver; the libraries that start them do that."""
    modules = Path(synthbench.__file__).parent.rglob("*.py")

    assert [path.name for path in modules if UNPICKLING.search(path.read_text(encoding="utf-8"))] == ["plugins.py"]


# Files of other forms


def varint(number: int) -> bytes:
    """A positive number as a Parquet footer writes it."""
    number *= 2
    low = bytes(number >> shift & 127 | 128 for shift in range(0, number.bit_length() - 7, 7))
    return low + bytes([number >> 7 * len(low)])


def footer_with(content: bytes, lies: dict[int, int]) -> bytes:
    """A Parquet file whose footer has other numbers."""
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    for number, lie in lies.items():
        assert varint(number) in footer
        footer = footer.replace(varint(number), varint(lie))
    return content[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


@pytest.fixture
def path(store: Store) -> Path:
    """The place of a file of many rows, the only one of the store."""
    return store.root / "compact" / f"runs-{'0' * 16}.parquet"


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    """A row that holds."""
    return filled(tmp_path / "sound", [make_row()]).table()


def test_rows_that_another_writer_wrote_again_are_read_as_before(table: pa.Table, store: Store, path: Path) -> None:
    """Pandas widens texts, whole numbers and times, and loses what the footer says; others fold repeated values."""
    frame = table.to_pandas().astype({"seed": "int64", "started_at": "datetime64[ns, UTC]"})
    frame.to_parquet(path, index=False)
    assert store.table().equals(table), store.quarantined

    folded = table
    for name in ("task", "seed"):
        place, column = RUNS.get_field_index(name), table[name].combine_chunks().dictionary_encode()
        folded = folded.set_column(place, pa.field(name, column.type), column)
    wide = table.set_column(RUNS.get_field_index("task"), "task", table["task"].cast(pa.large_string()))
    for rewritten in (wide, folded):
        forge(path, rewritten)
        assert store.table().equals(table), store.quarantined


def test_a_footer_that_lies_about_rows_or_sizes_costs_the_file(table: pa.Table, store: Store, path: Path) -> None:
    many = forge(path, pa.concat_tables([table] * 5000).combine_chunks()).read_bytes()
    row = {**table.to_pylist()[0], "error_message": "x" * 2**26}
    bomb = forge(path, [row], compression="zstd", use_dictionary=False).read_bytes()
    group = pq.read_metadata(path).row_group(0)
    declared = group.column(RUNS.get_field_index("error_message")).total_uncompressed_size
    cases = {
        "claims 3000000000 rows": footer_with(many, {5000: 3_000_000_000}),
        "more than 1048576 bytes": footer_with(bomb, {declared: 1000, group.total_byte_size: 2000}),
    }
    for reason, content in cases.items():
        path.write_bytes(content)
        assert store.table().num_rows == 0
        assert reason in store.quarantined[-1].reason


# Disks that are not of this machine, and stores of other people


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_refused_before_any_training_and_can_be_read(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(code))

    with pytest.raises(StoreError, match="has no file locks, name a folder on one that has") as refusal:
        Store.open(tmp_path / "sound", create=True)
    assert refusal.value.exit_code == 3
    assert reader(tmp_path / "sound").table().equals(table)


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_where_the_kernel_has_no_locks_files_take_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOSYS))

    assert filled(tmp_path / "store", [make_row()]).compact() == 1
    assert list(reader(tmp_path / "store").statuses().values()) == ["ok"]


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("is_compact", [False, True])
def test_a_read_that_fails_for_now_moves_and_deletes_nothing(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, is_compact: bool
) -> None:
    root = tmp_path / "sound"
    if is_compact:
        Store.open(root, create=True).compact()
    before = {path.name: path.read_bytes() for path in root.rglob("*.parquet")}
    genuine = os.open

    def fail(path: Any, *how: Any, **options: Any) -> int:
        if str(path).endswith(".parquet"):
            raise OSError(code, os.strerror(code))
        return genuine(path, *how, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        store = Store.open(root, create=True)
        if code == errno.EIO:
            # A broken sector says so too: the row is made again, and the file lies in quarantine as it was.
            assert store.table().num_rows == 0
            assert store.quarantined[0].reason.startswith("it cannot be read")
            (moved,) = (root / "quarantine").iterdir()
            assert moved.read_bytes() in before.values()
            return
        for act in (store.table, store.statuses, store.compact):
            with pytest.raises(StoreError, match=r"cannot read .*; nothing was moved"):
                act()

    assert {path.name: path.read_bytes() for path in root.rglob("*.parquet")} == before
    assert reader(root).table().equals(table)


@pytest.mark.parametrize("is_done", [False, True], ids=["not renamed", "renamed, then no answer"])
def test_a_rename_without_an_answer_is_an_error_and_the_row_can_be_written_again(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    store = Store.open(tmp_path / "sound", create=True)
    genuine = os.replace

    def replace(source: Any, target: Any) -> None:
        if is_done:
            genuine(source, target)
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        with pytest.raises(StoreError, match="cannot write"):
            store.write_all([(make_row(seed=7), [])])
    assert len(store.statuses()) == 1 + is_done
    store.write_all([(make_row(seed=7), [])])

    assert len(store.statuses()) == 2
    assert store.quarantined == []
    assert table["run_id"][0].as_py() in store.statuses()


@pytest.mark.parametrize("fault", ["folder", "file", "lock"])
def test_in_a_store_of_another_user_nothing_is_moved(table: pa.Table, tmp_path: Path, fault: str, need: Need) -> None:
    need("root", os.geteuid() == 0, "only root can become another user")
    root = tmp_path / "sound"
    shared = Path(tempfile.gettempdir())
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to(shared) and folder != shared:
            folder.chmod(0o755)
    if fault != "folder":
        for folder in (root, *(path for path in root.iterdir() if path.is_dir())):
            folder.chmod(0o1777)  # as /tmp: all may write, and only the owner may move
    if fault == "file":
        next((root / "runs").iterdir()).chmod(0o600)
    os.seteuid(65534)
    try:
        if fault == "file":
            with pytest.raises(StoreError, match="Permission denied; nothing was moved"):
                reader(root).table()
        else:
            assert reader(root).table().equals(table)
        with pytest.raises(StoreError, match=r"cannot write to the results store .*Permission denied"):
            Store.open(root, create=True)
    finally:
        os.seteuid(0)
    assert len(list((root / "runs").iterdir())) == 1
