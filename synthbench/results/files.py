"""One Parquet file of rows, curves or verifications: from table to bytes and back, read as hostile input.

What is refused here a file says by itself: that it is no Parquet, too large, of other columns, of a newer schema.
Whether the rows in it hold is asked in :mod:`synthbench.results.reading`.
"""

import errno
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Int64

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

FILE_ROWS = 50_000
"""Rows that are written into one file: 170 MB in memory."""
FILE_POINTS = 4_000_000
"""Points of curves that are written into one file; a curve lies in one file in any case."""

BATCH_ROWS = 4096
"""Rows that are decoded at once: what is needed in Python for each of them is many times what lies in the file."""


Identity = tuple[int, int]
"""Inode and time of change, which tell a file from one that was put in its place: the inode alone may be used again."""


class Damaged(Exception):  # noqa: N818 -- not an error: the reader goes on without the file
    """A file that cannot be trusted; its message says why."""

    identity: Identity | None = None
    """None if it could not even be opened."""


@dataclass(frozen=True)
class Origin:
    """A file as it was when it was read."""

    path: Path
    identity: Identity
    sha256: str
    """Of its bytes."""

    @property
    def is_sealed(self) -> bool:
        """Whether its name is the hash of its bytes, as that of a file of many rows is when it is written."""
        return self.path.stem in (f"{kind}-{self.sha256[:16]}" for kind in ("runs", "curves"))


@dataclass(frozen=True)
class File:
    """A file whose footer and columns are right; nothing is known yet of the values in it."""

    origin: Origin
    schema: pa.Schema
    """The present one; columns that the writer did not know yet are read as null."""
    parquet: pq.ParquetFile

    @property
    def identity(self) -> Identity:
        """What tells it from a file that was put in its place."""
        return self.origin.identity

    def batches(self, names: Sequence[str] | None = None, *, num_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """The rows, a few thousand at a time; of all columns, or of some.

        Raises:
            Damaged: If a part of the file cannot be decoded, or unfolds to more than is allowed.
        """
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        left = _max_bytes(self.origin.path)
        present = set(self.parquet.metadata.schema.names)
        with _decoding():
            columns = [name for name in schema.names if name in present]
            for batch in self.parquet.iter_batches(num_rows, columns=columns, use_threads=False):
                arrays = []
                for field in schema:
                    if field.name not in present:
                        arrays.append(pa.nulls(batch.num_rows, field.type))
                        continue
                    column = batch.column(field.name)
                    if pa.types.is_dictionary(column.type):
                        left -= _text_bytes(column)
                        if left < 0:
                            raise Damaged(f"it unfolds to more than {_max_bytes(self.origin.path)} bytes")
                        column = column.cast(field.type)
                    arrays.append(column)
                yield pa.Table.from_arrays(arrays, schema=schema)

    def table(self, names: Sequence[str] | None = None) -> pa.Table:
        """All rows at once."""
        batches = list(self.batches(names))
        return pa.concat_tables(batches) if batches else pa.Table.from_batches([], self.schema)


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

    Its rows are decoded later, so that a file of many needs little memory.
    """
    try:
        return _opened(path)
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


def pieces(kind: str, table: pa.Table) -> Iterator[pa.Table]:
    """Rows, or whole curves, in pieces that a file of many may hold and that fit into memory several times."""
    starts, most = (curve_starts(table), FILE_POINTS) if kind == "curves" else (np.arange(len(table)), FILE_ROWS)
    ends = np.append(starts[1:], table.num_rows)
    cuts = ends[:-1][np.diff((ends - 1) // most) > 0]
    for start, end in itertools.pairwise([0, *cuts.tolist(), table.num_rows]):
        yield table.slice(start, end - start)


def curve_starts(points: pa.Table) -> Int64[np.ndarray, " curves"]:
    """Where the points of another run begin, in a table of points."""
    if not points.num_rows:
        return np.zeros(0, dtype=np.int64)
    ends = pc.run_end_encode(points["run_id"].combine_chunks()).run_ends.to_numpy()
    return np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1].astype(np.int64)])


def same(actual: pa.Table, expected: pa.Table) -> bool:
    """Equality that counts NaN as equal to NaN and tells 0 from -0, unlike Arrow's."""
    # Column by column: a copy of all of them may be large.
    return bool(actual.schema == expected.schema) and all(
        _bits(column).equals(_bits(other)) for column, other in zip(actual.columns, expected.columns, strict=True)
    )


def _bits(column: pa.ChunkedArray) -> pa.Array:
    """The same with the bits of numbers in place of the numbers."""
    whole = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    return column.combine_chunks().view(whole.get(column.type, column.type))


def _opened(path: Path) -> File:
    content, identity = _content(path, _max_bytes(path))
    try:
        with _decoding():
            metadata = pq.read_metadata(pa.BufferReader(content))
            _check_size(path, metadata)
            parquet = _parquet(content, metadata)
            columns, schema = _kind(path)
            present = metadata.schema.to_arrow_schema()
        if schema is RUNS:
            _refuse_newer(path, parquet)
        _check_columns(present, columns)
    except Damaged as damage:
        damage.identity = identity
        raise
    return File(Origin(path, identity, hashlib.sha256(content).hexdigest()), schema, parquet)


def _kind(path: Path) -> tuple[Sequence[Column], pa.Schema]:
    """What a file holds, by its place."""
    if path.parent.name == "verified":
        return VERIFICATION_COLUMNS, VERIFICATIONS
    is_runs = path.parent.name == "runs" or path.name.startswith("runs-")
    return (RUN_COLUMNS, RUNS) if is_runs else (CURVE_COLUMNS, CURVES)


def _max_bytes(path: Path) -> int:
    return MAX_COMPACT_BYTES if path.parent.name == "compact" else MAX_SMALL_BYTES


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
        # A disk says EIO of a broken sector. Anything else may be over in a minute, and says nothing against the file.
        if error.errno == errno.EIO:
            raise Damaged(f"it cannot be read: {error.strerror}") from error
        raise StoreError(f"cannot read {path}: {error.strerror}; nothing was moved") from error


@contextmanager
def _decoding() -> Iterator[None]:
    """Every way in which Arrow can refuse a Parquet file becomes one."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise Damaged(f"not a readable Parquet file: {str(error).strip()[:200]}") from error


def _check_size(path: Path, claimed: pq.FileMetaData) -> None:
    groups = [claimed.row_group(index) for index in range(claimed.num_row_groups)]
    size = max(sum(group.total_byte_size for group in groups), 8 * claimed.num_rows * claimed.num_columns)
    max_rows = 1 if path.parent.name == "runs" else MAX_ROWS
    if claimed.num_rows > max_rows or size > _max_bytes(path):
        raise Damaged(f"it claims {claimed.num_rows} rows, {size} bytes")


def _parquet(content: bytes, metadata: pq.FileMetaData) -> pq.ParquetFile:
    columns = map(metadata.schema.column, range(metadata.num_columns))
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    return pq.ParquetFile(
        pa.BufferReader(content),
        metadata=metadata,
        # A text that is in the file once may be in a million rows: it is unfolded only where there is room for it.
        read_dictionary=texts if metadata.num_rows > 1 else None,
        page_checksum_verification=True,
    )


def _text_bytes(column: pa.DictionaryArray) -> int:
    """Bytes of the texts that stand in a column as numbers into a list of texts."""
    return pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0


def _check_columns(present: pa.Schema, columns: Sequence[Column]) -> None:
    """Refuse columns that are unknown, doubled, missing or of another type."""
    types = {field.name: field.type for field in present}
    if unknown := types.keys() - {column.name for column in columns}:
        raise Damaged("it has unknown columns: " + ", ".join(sorted(unknown))[:200])
    if len(types) != len(present):
        raise Damaged("a column occurs twice")
    for column in columns:
        if column.name not in types:
            if not column.is_nullable:
                raise Damaged(f"it lacks the column {column.name}")
            continue
        stated = types[column.name]
        plain = stated.value_type if pa.types.is_dictionary(stated) else stated
        if plain != column.arrow_type:
            raise Damaged(f"column {column.name} is {plain}, not {column.arrow_type}")


def _refuse_newer(path: Path, parquet: pq.ParquetFile) -> None:
    """Stop at a newer file: to leave its rows out would be a wrong answer, not a careful one.

    A file of many rows has the footer of who merged them, so old rows may lie under a newer one; then a column that is
    unknown here tells.

    Raises:
        StoreError: If footer and rows, or footer and columns, agree that a newer synthbench wrote them.
    """
    try:
        in_footer = int((parquet.metadata.metadata or {})[b"synthbench.schema_version"])
        with _decoding():
            stated = parquet.read(["schema_version"], use_threads=False)
            in_rows = pc.max(stated["schema_version"]).as_py()
        are_rows_newer = (in_footer if in_rows is None else in_rows) > SCHEMA_VERSION
    except (ValueError, KeyError, TypeError):
        raise Damaged("it does not say which schema it has") from None
    is_footer_newer = in_footer > SCHEMA_VERSION
    if is_footer_newer and (are_rows_newer or not set(parquet.metadata.schema.names) <= set(RUNS.names)):
        raise StoreError(
            f"{path} was written by a newer synthbench: schema {in_footer}, this one reads up to {SCHEMA_VERSION}"
        )
    # One of the two alone is a flipped bit.
    if is_footer_newer or are_rows_newer:
        raise Damaged("footer and rows disagree about the schema")
