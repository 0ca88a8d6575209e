"""Files that cannot be trusted cost their rows, which are counted, and nothing else: stores come from strangers too."""

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from synthbench.errors import StoreError
from synthbench.results import RUNS, Store
from synthbench.results.maintenance import collect, examine
from synthbench.results.schema import CURVE_COLUMNS, CURVES, SCHEMA_VERSION
from synthbench.results.store import LIMITS, suspects
from synthbench.trust.beside import join
from synthbench.trust.merge import merge
from synthbench.trust.verify import Sampling, verify
from tests.results.rows import Row, make_row
from tests.results.stores import CURVE, filled, forge, hash_named, listing, reader, signed, written

ANY = f"job-{'0' * 16}.parquet"
NUM_ROWS = 6


# Bytes


@pytest.mark.parametrize(
    ("content", "kind"), [(b"", "runs"), (b"garbage" * 100, "curves"), (b"PAR1" + bytes(5000) + b"PAR1", "runs")]
)
def test_a_file_that_is_not_parquet_is_moved_and_counted(root: Path, content: bytes, kind: str) -> None:
    good, bad = make_row(seed=1), make_row(seed=2)
    made = filled(root, [good], CURVE)
    path = written(made, bad, kind)
    path.write_bytes(content)

    assert set(made.curves()["run_id"]) == {good["run_id"]}

    assert (made.quarantined[0].file, made.quarantined[0].is_moved) == (f"{kind}/{path.name}", True)
    assert not path.exists()
    (moved,) = (root / "quarantine").iterdir()
    assert moved.read_bytes() == content
    assert set(made.statuses()) == ({good["run_id"]} if kind == "runs" else {good["run_id"], bad["run_id"]})


# Sizes and links


def test_a_file_that_holds_or_claims_more_than_is_allowed_is_not_read(root: Path) -> None:
    row = make_row(error_message="x" * 2**18)
    store = Store.open(root, create=True, limits=replace(LIMITS, file_bytes=2**17))
    many = [make_row(error_message="x" * 2**12)] * 2**6
    for content, reason in (
        ([row], "it claims 1 rows"),
        (many, "it unfolds to more than 131072 bytes"),
        (bytes(2**17 + 1), "it has 131073 bytes"),
    ):
        if isinstance(content, bytes):
            (root / "runs" / ANY).write_bytes(content)
        else:
            forge(root / "runs" / ANY, content)
        assert len(store.runs()) == 0
        assert store.quarantined[-1].reason.startswith(reason)


@pytest.mark.parametrize("name", ["runs", "curves", "compact", "verified", "_tmp", "quarantine", "logs"])
def test_a_store_with_a_link_as_folder_is_refused_and_left_as_it_is(root: Path, tmp_path: Path, name: str) -> None:
    filled(root, [make_row()], CURVE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for victim in ("mine.parquet", ANY, "empty.log", "thesis.partial"):
        (elsewhere / victim).write_bytes(b"" if victim == "empty.log" else b"x")
        os.utime(elsewhere / victim, (0, 0))
    before = listing(elsewhere)
    if (root / name).exists():
        (root / name).rename(root / f"former-{name}")
    (root / name).symlink_to(elsewhere)

    for create in (True, False):
        with pytest.raises(StoreError, match=f"{name} is a link"):
            Store.open(root, create=create)
    assert listing(elsewhere) == before


def test_what_is_no_plain_file_or_has_another_name_is_reported_never_read_or_moved(root: Path, tmp_path: Path) -> None:
    made = filled(root, [make_row()], CURVE)
    other = filled(tmp_path / "other", [make_row(seed=1)]).loose()[0]
    (root / "runs" / ANY).symlink_to(other)
    os.mkfifo(root / "curves" / ANY)
    (root / "verified" / f"verified-{'0' * 16}.parquet").mkdir()
    for folder in ("runs", "compact"):
        (root / folder / "mine.parquet").write_bytes(other.read_bytes())
    left = {"runs/mine.parquet", "compact/mine.parquet", f"runs/{ANY}", f"curves/{ANY}",
            f"verified/verified-{'0' * 16}.parquet"}  # fmt: skip

    assert len(made.runs()) == 1, made.quarantined
    assert len(made.curves()) == len(CURVE)
    examine(made, is_repairing=True)
    collect(made, is_dry=False)
    made.compact()
    assert {report.file for report in made.quarantined} == left
    assert not any(report.is_moved for report in made.quarantined)
    assert all((root / name).exists() for name in left)
    assert other.exists()

    marked = root / "_tmp" / "driver"  # what a killed driver left lies in a folder, which may be a link too
    marked.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    for name in ("held", "thesis"):
        (tmp_path / "elsewhere" / name).touch()
        os.utime(tmp_path / "elsewhere" / name, (0, 0))
    collect(made, is_dry=False)
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2


@pytest.mark.parametrize(
    ("name", "message"), [("store.json", r"store\.json cannot be read"), ("_tmp/compact.lock", "is a link")]
)
def test_a_store_json_or_a_lock_that_is_a_link_is_refused(root: Path, tmp_path: Path, name: str, message: str) -> None:
    Store.open(root, create=True)
    thesis = tmp_path / "thesis"
    thesis.write_text('{"format": 2}')
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(thesis)

    with pytest.raises(StoreError, match=message):
        Store.open(root, create=True)
    assert thesis.read_text() == '{"format": 2}'


# Columns and values


def with_column(name: str, values: pa.Array) -> pa.Table:
    """A row that holds but for one column."""
    table = pa.Table.from_pylist([make_row()], schema=RUNS)
    return table.set_column(RUNS.get_field_index(name), pa.field(name, values.type), values)


NO_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
NO_TIME = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (RUNS.empty_table(), "it holds nothing"),
        (with_column("seed", pa.array([1])).drop_columns("seed"), "it lacks the column seed"),
        (with_column("seed", pa.array([1])).append_column("extra", pa.array(["x"])), "it has unknown columns: extra"),
        (with_column("seed", pa.array(["1"])), "column seed is string, not int64"),
        (with_column("finished_at", pa.array([1])), "column finished_at is int64"),
        (with_column("run_id", pa.array([b"\xff"])), "column run_id is binary"),
        (with_column("metrics", pa.array([["x"]])), "column metrics is list"),
        (with_column("metrics", pa.array([{"a": 1}])), "column metrics is struct"),
        (with_column("metrics", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))), "column metrics is map"),
        (with_column("metrics", pa.array(["{}"], pa.json_())), "column metrics is extension"),
        (with_column("schema_version", pa.array([["x"]])), "column schema_version is list"),
        (with_column("os", NO_TEXT), "it holds no readable row"),
        (with_column("finished_at", NO_TIME), "it holds no readable row"),
    ],
)
def test_a_column_that_is_foreign_missing_nested_or_of_another_type_costs_the_file_and_is_named(
    root: Path, table: pa.Table, reason: str
) -> None:
    store = Store.open(root, create=True)
    forge(root / "runs" / ANY, table)

    assert store.table().num_rows == len(store.statuses()) == 0
    (left_out,) = store.quarantined
    assert left_out.is_moved
    assert left_out.reason.startswith(reason)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("metrics", '"' + "x" * 2**20 + '"', "more than 1048576 bytes"),
        ("metrics", "{", "column 'metrics'"),
        ("config_json", "[" * 100_000 + "]" * 100_000, "column 'config_json' is '[[["),
        ("mech", "<script>", "column 'mech'"),
        ("run_id", "../../../x", "allowed: 16 hex digits"),
    ],
)
def test_a_hostile_row_is_left_out_though_its_checksum_holds(root: Path, name: str, value: str, reason: str) -> None:
    row, good = signed(make_row() | {name: value}), signed(make_row(seed=1))
    store = hash_named(root, [row, good])
    forge(root / "runs" / ANY, [row])
    forge(root / "compact" / f"runs-{'0' * 16}.parquet", [row])

    assert store.runs()["run_id"].tolist() == [good["run_id"]]
    assert len(store.quarantined) == 3
    assert all(reason in report.reason for report in store.quarantined)


@pytest.mark.parametrize(
    ("in_footer", "in_row", "reason"),
    [
        *((*versions, "disagree about the schema") for versions in ((99, 1), (1, 99))),
        *((*versions, "schema") for versions in ((None, 0), (None, -1), (SCHEMA_VERSION, 0), (0, 5), (-1, 5))),
    ],
)
def test_a_version_that_only_footer_or_row_claims_or_that_no_schema_has_is_damage(
    root: Path, in_footer: int | None, in_row: int, reason: str
) -> None:
    made = Store.open(root, create=True)
    forge(root / "runs" / ANY, [signed(make_row() | {"schema_version": in_row})], version=in_footer)

    assert len(made.runs()) == 0
    assert reason in made.quarantined[0].reason


def test_a_newer_row_without_a_footer_is_refused_and_left_as_it_is(root: Path) -> None:
    made = Store.open(root, create=True)
    path = forge(root / "runs" / ANY, [signed(make_row() | {"schema_version": 99})], version=None)

    with pytest.raises(StoreError, match="written by a newer synthbench: schema 99"):
        made.runs()
    assert path.exists()


# Hashes in names: readers take the name of a file for the checksums of its rows; whoever vouches for rows does not


@pytest.fixture
def rows() -> list[Row]:
    return [signed(make_row(seed=seed)) for seed in range(NUM_ROWS)]


@pytest.fixture
def forged(rows: list[Row], tmp_path: Path) -> Store:
    """The first row has another loss than its checksum says: no accident, as the file bears the hash of its bytes."""
    return hash_named(tmp_path / "forged", [rows[0] | {"eval_loss": 0.125}, *rows[1:]])


def test_a_wrong_hash_in_a_name_brings_every_checksum_back(forged: Store, rows: list[Row]) -> None:
    (path,) = forged.root.joinpath("compact").iterdir()
    path.rename(path.with_name(f"runs-{'0' * 16}.parquet"))

    assert set(forged.table()["run_id"].to_pylist()) == {row["run_id"] for row in rows[1:]}
    assert "checksum" in forged.quarantined[0].reason


def test_whoever_vouches_for_rows_or_shows_them_beside_ones_own_computes_their_checksums(
    forged: Store, rows: list[Row], tmp_path: Path
) -> None:
    sound = {row["run_id"] for row in rows[1:]}
    # Readers trust the name.
    assert forged.table().num_rows == forged.read()[0].shape[0] == len(forged.statuses()) == NUM_ROWS
    assert forged.quarantined == []
    assert set(forged.table(is_checked=True)["run_id"].to_pylist()) == sound

    (broken,) = examine(reader(forged.root), is_repairing=False)
    assert "checksum" in broken.why
    assert any("checksum" in fault for _, fault in verify(reader(forged.root), Sampling(device="cpu")).faults)

    merged, imported = (Store.open(tmp_path / name, create=True) for name in ("merged", "imported"))
    assert "checksum" in next(iter(merge(merged, forged.root).left_out.values()))
    imported.import_rows(forged)
    for store in (merged, imported):
        assert rows[0]["run_id"] not in store.statuses()

    mine = signed(make_row(seed=99))
    joined = join(hash_named(tmp_path / "own", [mine]).root, str(forged.root), has_packaged=False)
    assert {*joined.rows["run_id"]} == {mine["run_id"], *sound}
    assert any("checksum" in left.reason for left in joined.left_out)

    examine(Store.open(forged.root, create=True), is_repairing=True)
    assert set(forged.statuses()) == sound


def test_a_point_of_a_curve_with_an_odd_name_is_suspect() -> None:
    point = {"step": 1, "split": "train", "metric": "loss", "value": 0.5, "wall_s": 1.0, "tokens": 1}
    point |= {"run_id": "0" * 16}
    points = [point, point | {"split": "<b>"}, point | {"step": None}]

    assert suspects(CURVE_COLUMNS, pa.Table.from_pylist(points, schema=CURVES)).tolist() == [False, True, True]
