"""Readers take the name of a file of many rows for the checksums of its rows; whoever vouches for rows does not."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from synthbench.results.files import encode

from synthbench.results import RUNS, Store, reading
from synthbench.results.maintenance import examine
from synthbench.results.schema import curve_sha256, row_sha256
from synthbench.trust.beside import join
from synthbench.trust.merge import merge
from synthbench.trust.verify import Sampling, verify

MakeRow = Callable[..., dict[str, Any]]
NUM_ROWS = 20  # more than are looked at one by one


def sealed(root: Path, rows: list[dict[str, Any]]) -> Store:
    """A store with some rows, as they are, in one file under the hash of its bytes."""
    Store.open(root, create=True)
    content = encode("runs", pa.Table.from_pylist(rows, schema=RUNS))
    (root / "compact" / f"runs-{hashlib.sha256(content).hexdigest()[:16]}.parquet").write_bytes(content)
    return Store.open(root, create=False)


@pytest.fixture
def rows(make_row: MakeRow) -> list[dict[str, Any]]:
    made = [make_row(seed=seed) for seed in range(NUM_ROWS)]
    return [row | {"row_sha256": row_sha256(row)} for row in made]


@pytest.fixture
def forged(rows: list[dict[str, Any]], tmp_path: Path) -> Store:
    """The first row has another loss than its checksum says: no accident, as the file bears the hash of its bytes."""
    return sealed(tmp_path / "forged", [rows[0] | {"eval_loss": 0.125}, *rows[1:]])


def test_a_seal_that_is_broken_brings_every_checksum_back(forged: Store, rows: list[dict[str, Any]]) -> None:
    (path,) = forged.root.joinpath("compact").iterdir()
    path.rename(path.with_name(f"runs-{'0' * 16}.parquet"))

    assert set(forged.table()["run_id"].to_pylist()) == {row["run_id"] for row in rows[1:]}
    assert "checksum" in forged.quarantined[0].reason


def test_whoever_vouches_for_rows_computes_their_checksums(
    forged: Store, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    sound = {row["run_id"] for row in rows[1:]}
    # Readers take the seal.
    assert forged.table().num_rows == forged.read()[0].shape[0] == len(forged.statuses()) == NUM_ROWS
    assert forged.quarantined == []
    assert set(forged.table(is_checked=True)["run_id"].to_pylist()) == sound

    (broken,) = examine(Store.open(forged.root, create=False), is_repairing=False)
    assert "checksum" in broken.why

    merged, adopted = (Store.open(tmp_path / name, create=True) for name in ("merged", "adopted"))
    assert "checksum" in next(iter(merge(merged, forged.root).left_out.values()))
    adopted.adopt(forged)
    for store in (merged, adopted):
        assert rows[0]["run_id"] not in store.statuses()

    assert any("checksum" in fault for _, fault in verify(forged, Sampling(device="cpu")).faults)

    Store.open(forged.root, create=True).compact()
    assert set(forged.statuses()) == sound


def test_rows_of_somebody_else_that_stand_beside_ones_own_have_their_checksums_computed(
    forged: Store, rows: list[dict[str, Any]], make_row: MakeRow, tmp_path: Path
) -> None:
    mine = make_row(seed=99)
    ours = sealed(tmp_path / "own", [mine | {"row_sha256": row_sha256(mine)}])
    joined = join(ours.root, str(forged.root), has_packaged=False)

    assert {*joined.rows["run_id"]} == {mine["run_id"]} | {row["run_id"] for row in rows[1:]}
    assert any("checksum" in left.reason for left in joined.left_out)


@pytest.mark.parametrize("change", [{"task": "../b"}, {"metrics": "{"}])
def test_a_seal_says_nothing_of_the_values(rows: list[dict[str, Any]], tmp_path: Path, change: dict[str, Any]) -> None:
    hostile = rows[0] | change
    store = sealed(tmp_path / "hostile", [hostile | {"row_sha256": row_sha256(hostile)}, *rows[1:]])

    assert set(store.table()["run_id"].to_pylist()) == {row["run_id"] for row in rows[1:]}
    assert "allowed" in store.quarantined[0].reason


def test_small_files_beside_a_sealed_one_are_checked(
    rows: list[dict[str, Any]], make_row: MakeRow, tmp_path: Path
) -> None:
    store = sealed(tmp_path / "store", rows)
    alone = make_row(seed=99)
    changed = alone | {"row_sha256": row_sha256(alone), "eval_loss": 0.125}
    path = store.root / "runs" / f"run-{alone['run_id']}.parquet"
    path.write_bytes(encode("runs", pa.Table.from_pylist([changed], schema=RUNS)))

    assert set(store.table()["run_id"].to_pylist()) == {row["run_id"] for row in rows}
    assert "checksum" in store.quarantined[0].reason


def test_only_the_curves_that_are_asked_for_are_hashed(
    make_row: MakeRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "store", create=True)
    point = {"step": 1, "split": "train", "metric": "loss", "value": 0.5, "wall_s": 1.0, "tokens": 1}
    for seed in range(4):
        store.write(make_row(seed=seed), [point])
    store.compact()
    hashed: list[str] = []

    def remember(curve: dict[str, list[Any]]) -> str:
        hashed.extend(curve["run_id"])
        return curve_sha256(curve)

    monkeypatch.setattr(reading, "curve_sha256", remember)
    wanted = make_row(seed=2)["run_id"]

    assert store.curves([wanted])["run_id"].tolist() == hashed == [wanted]
