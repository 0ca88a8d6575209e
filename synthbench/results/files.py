"""One Parquet file of rows, curves or verifications: from table to bytes and back, read as hostile input.

What is refused here a file says by itself: that it is no Parquet, too large, of other columns, of a newer schema.
Whether the rows in it hold is asked in :mod:`synthbench.results.reading`.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from synthbench import __version__
from synthbench.errors import StoreError
from synthbench.results.schema import (
    CURVE_COLUMNS,
    CURVES,
    RUN_COLUMNS,
    RUNS,
    SCHEMA_VERSION,
    VERIFICATION_COLUMNS,
    VERIFICATIONS,
    Column,
)

# A store may come from a stranger, and a few kilobytes of zstd can claim to hold terabytes.
MAX_ROWS = 5_000_000
MAX_SMALL_BYTES = 2**25
MAX_COMPACT_BYTES = 2**31


Identity = tuple[int, int]
"""Inode and time of change, which tell a file from one that was put in its place: the inode alone may be used again."""


class Damaged(Exception):  # noqa: N818 -- not an error: the reader goes on without the file
    """A file that cannot be trusted; its message says why."""

    identity: Identity | None = None
    """None if it could not even be opened."""


@dataclass(frozen=True)
class File:
    """A file that could be decoded; nothing is known yet of the values in it."""

    path: Path
    identity: Identity
    table: pa.Table
    is_sealed: bool = False
    """Whether its name is the hash of its bytes, as that of a file of many rows is when it is written."""


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder in the order of their names; a folder that is missing has none.

    Raises:
        StoreError: If the folder cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".parquet") and entry.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {error.strerror}") from error
    return [folder / name for name in sorted(names)]


def encode(kind: str, table: pa.Table) -> bytes:
    """A table as the bytes of a file; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    is_small = table.num_rows == 1
    with pq.ParquetWriter(
        sink,
        table.schema,
        # Pages of one value: zstd makes them longer and reading twice as slow.
        compression="none" if is_small else "zstd",
        use_dictionary=not is_small,
        write_statistics=not is_small,
        write_page_checksum=True,
        # The Parquet types say all that our columns need; Arrow's copy of the schema doubles a one-row file.
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {
                "synthbench.schema": kind,
                "synthbench.schema_version": str(SCHEMA_VERSION),
                "synthbench.writer": __version__,
            }
        )
    return bytes(sink.getvalue())


def read(path: Path) -> File | Damaged | None:
    """What a file holds, why it cannot be trusted, or None if it is gone.

    Raises:
        StoreError: If a newer synthbench wrote it.
    """
    try:
        return _load(path)
    except FileNotFoundError:
        return None
    except Damaged as damage:
        return damage


def identity_of(path: Path) -> Identity | None:
    """Which file is there now; None if it is gone."""
    try:
        return _identity(path.stat())
    except FileNotFoundError:
        return None


def stack(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables in one, which may be none."""
    # Not schema.empty_table(), which imports pandas.
    return pa.concat_tables([pa.Table.from_batches([], schema), *tables]).combine_chunks()


def same(actual: pa.Table, expected: pa.Table) -> bool:
    """Equality that counts NaN as equal to NaN and tells 0 from -0, unlike Arrow's."""
    return bool(actual.schema == expected.schema and _bits(actual).equals(_bits(expected)))


def _bits(table: pa.Table) -> pa.Table:
    """The same with the bits of numbers in place of the numbers."""
    whole = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    columns = [column.combine_chunks() for column in table.columns]
    return pa.table([column.view(whole.get(column.type, column.type)) for column in columns], table.column_names)


def _load(path: Path) -> File:
    is_small = path.parent.name != "compact"
    max_bytes = MAX_SMALL_BYTES if is_small else MAX_COMPACT_BYTES
    content, identity = _content(path, max_bytes)
    try:
        return _decoded(path, content, identity, max_bytes)
    except Damaged as damage:
        damage.identity = identity
        raise


def _decoded(path: Path, content: bytes, identity: Identity, max_bytes: int) -> File:
    is_small = path.parent.name != "compact"
    is_runs = path.parent.name == "runs" or path.name.startswith("runs-")
    max_rows = 1 if is_small and is_runs else MAX_ROWS
    table, footer = _decode(content, max_rows, max_bytes)
    if path.parent.name == "verified":
        return File(path, identity, _aligned(table, VERIFICATION_COLUMNS, VERIFICATIONS))
    if not is_runs:
        return File(path, identity, _aligned(table, CURVE_COLUMNS, CURVES))
    _refuse_newer(path, table, footer)
    is_sealed = not is_small and path.stem == f"runs-{hashlib.sha256(content).hexdigest()[:16]}"
    return File(path, identity, _aligned(table, RUN_COLUMNS, RUNS), is_sealed)


def _identity(status: os.stat_result) -> Identity:
    return status.st_ino, status.st_mtime_ns


def _content(path: Path, max_bytes: int) -> tuple[bytes, Identity]:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > max_bytes:
                raise Damaged(f"it has {status.st_size} bytes")
            return file.read(), _identity(status)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from error


def _decode(content: bytes, max_rows: int, max_bytes: int) -> tuple[pa.Table, dict[bytes, bytes]]:
    """The table and the footer's metadata of a Parquet file; every way in which Arrow can refuse becomes one."""
    try:
        claimed = pq.read_metadata(pa.BufferReader(content))
        groups = [claimed.row_group(index) for index in range(claimed.num_row_groups)]
        size = max(sum(group.total_byte_size for group in groups), 8 * claimed.num_rows * claimed.num_columns)
        if claimed.num_rows > max_rows or size > max_bytes:
            raise Damaged(f"it claims {claimed.num_rows} rows, {size} bytes")
        columns = map(claimed.schema.column, range(claimed.num_columns))
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        file = pq.ParquetFile(
            pa.BufferReader(content),
            metadata=claimed,
            # A text that is in the file once may be in a million rows: it is unfolded only where there is room for it.
            read_dictionary=texts if claimed.num_rows > 1 else None,
            page_checksum_verification=True,
        )
        return _unfolded(file.read(use_threads=False), max_bytes), dict(claimed.metadata or {})
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise Damaged(f"not a readable Parquet file: {str(error).strip()[:200]}") from error


def _unfolded(table: pa.Table, max_bytes: int) -> pa.Table:
    """The same with plain texts in place of numbers into a list of texts."""
    left = max_bytes
    for index, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type):
            continue
        for chunk in table.column(index).chunks:
            left -= pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
        if left < 0:
            raise Damaged(f"it unfolds to more than {max_bytes} bytes")
        plain = table.column(index).cast(field.type.value_type)
        table = table.set_column(index, field.with_type(field.type.value_type), plain)
    return table


def _aligned(table: pa.Table, columns: Sequence[Column], schema: pa.Schema) -> pa.Table:
    """The table under the present schema; columns that its writer did not know yet are null."""
    if table.schema.equals(schema):
        return table
    present = set(table.column_names)
    if unknown := present - set(schema.names):
        raise Damaged("it has unknown columns: " + ", ".join(sorted(unknown))[:200])
    if len(present) != table.num_columns:
        raise Damaged("a column occurs twice")
    arrays = []
    for column in columns:
        if column.name not in present:
            if not column.is_nullable:
                raise Damaged(f"it lacks the column {column.name}")
            arrays.append(pa.nulls(table.num_rows, column.arrow_type))
        elif table[column.name].type != column.arrow_type:
            raise Damaged(f"column {column.name} is {table[column.name].type}, not {column.arrow_type}")
        else:
            arrays.append(table[column.name])
    return pa.Table.from_arrays(arrays, schema=schema)


def _refuse_newer(path: Path, table: pa.Table, footer: Mapping[bytes, bytes]) -> None:
    """Stop at a newer file: to leave its rows out would be a wrong answer, not a careful one.

    A file of many rows has the footer of who merged them, so old rows may lie under a newer one; then a column that is
    unknown here tells.

    Raises:
        StoreError: If footer and rows, or footer and columns, agree that a newer synthbench wrote them.
    """
    try:
        in_footer = int(footer[b"synthbench.schema_version"])
        in_rows = max(table["schema_version"].to_pylist(), default=in_footer)
        are_rows_newer = in_rows > SCHEMA_VERSION
    except (ValueError, KeyError, TypeError):
        raise Damaged("it does not say which schema it has") from None
    is_footer_newer = in_footer > SCHEMA_VERSION
    if is_footer_newer and (are_rows_newer or not set(table.column_names) <= set(RUNS.names)):
        raise StoreError(
            f"{path} was written by a newer synthbench: schema {in_footer}, this one reads up to {SCHEMA_VERSION}"
        )
    # One of the two alone is a flipped bit.
    if is_footer_newer or are_rows_newer:
        raise Damaged("footer and rows disagree about the schema")
