"""Shared code of the tests of stores."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from synthbench.results import RUNS, SCHEMA_VERSION, Store
from synthbench.results.schema import row_sha256
from synthbench.results.store import LIMITS, Limits, encode
from tests.results.rows import Row

AT = datetime(2026, 2, 3, tzinfo=UTC)
CURVE: list[Row] = [
    {"step": step, "split": split, "metric": "loss", "value": value, "wall_s": 0.5 * step, "tokens": 64 * step}
    for step, value in ((10, 2.5), (20, float("nan")), (30, float("inf")))
    for split in ("train", "validation")
]


def filled(root: Path, rows: Iterable[Row], curve: Sequence[Mapping[str, Any]] = (), limits: Limits = LIMITS) -> Store:
    """A store with some rows, each as a job of its own."""
    made = Store.open(root, create=True, limits=limits)
    for row in rows:
        made.write_all([(row, curve)])
    return made


def written(store: Store, row: Row, kind: str = "runs") -> Path:
    """The loose file of a run that is written now."""
    before = store.loose(kind)
    store.write_all([(row, CURVE)])
    (path,) = set(store.loose(kind)) - set(before)
    return path


def reader(root: Path) -> Store:
    return Store.open(root, create=False)


def exact(store: Store) -> tuple[list[str], list[str]]:
    """Rows and points of curves as text, so that NaN equals NaN and differs from null."""
    points = store.curves().to_dict("records")
    return [repr(row) for row in store.table().to_pylist()], [repr(point) for point in points]


def listing(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file but locks: when it was changed, and its bytes."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def signed(row: Row) -> Row:
    return row | {"row_sha256": row_sha256(row)}


def forge(path: Path, rows: Sequence[Row] | pa.Table, *, version: int | None = SCHEMA_VERSION, **how: Any) -> Path:
    """Write a file as another synthbench, or a stranger, might have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=RUNS)
    with pq.ParquetWriter(path, table.schema, **how) as writer:
        writer.write_table(table)
        if version is not None:
            writer.add_key_value_metadata({"synthbench.schema_version": str(version)})
    return path


def hash_named(root: Path, rows: Sequence[Row]) -> Store:
    """A store with some rows, as they are, in one file under the hash of its bytes."""
    Store.open(root, create=True)
    content = encode("runs", pa.Table.from_pylist(list(rows), schema=RUNS))
    (root / "compact" / f"runs-{hashlib.sha256(content).hexdigest()[:16]}.parquet").write_bytes(content)
    return reader(root)


def word(row: Row, **changes: Any) -> Row:
    """Say that a row came out the same when somebody ran it again."""
    said = {
        "run_id": row["run_id"], "row_sha256": row["row_sha256"], "verdict": "bitwise", "verified_by": "somebody",
        "verified_at": AT, "synthbench_version": "1.0", "device_name": "a processor", "score": 0.75,
    }  # fmt: skip
    return said | changes


def failing(code: int) -> Callable[..., None]:
    """A call of the system that gives an error."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail
