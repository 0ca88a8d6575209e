"""What counts of the files in a store: the rows that hold, each run once; the curve of each; who ran a row again.

A file of many rows is *sealed* while its name is the hash of its bytes: no accident has changed a row in it since it
was written, from rows that hold. So readers take the seal for the checksums of its rows. A seal does not say who wrote
the file: the values are checked nevertheless, and the checksums too before rows enter another file or are vouched for.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from synthbench.errors import StoreError, UsageError
from synthbench.results.files import Damaged, File, Origin, curve_starts, read, stack
from synthbench.results.folder import RUN_ID, SMALL_AT_ONCE, Folder
from synthbench.results.migration import is_older, migrated, stated_name
from synthbench.results.schema import (
    CURVE_COLUMNS,
    CURVES,
    RUN_COLUMNS,
    RUNS,
    VERIFICATION_COLUMNS,
    Column,
    check_values,
    curve_sha256,
    row_sha256,
)

_DECIDING = ("run_id", "status", "migrated_from", "finished_at", "row_sha256")
"""What :func:`newest` looks at."""
_ORDER = ("suite", "task", "mech", "seed", "run_id")
INDEX = tuple(dict.fromkeys((*_DECIDING, *_ORDER, "curve_sha256")))
"""What tells which rows count, and which curves are theirs; the rest of a row takes ten times the memory."""

BATCH_POINTS = 2**17
"""Points of curves that are decoded at once."""

MAX_TEXT_BYTES = 2**16
"""A row with more text than this is always looked at by itself."""

# The years 1 to 9999 in microseconds: what lies outside, Python cannot name.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


_Wanted = dict[tuple[str, str | None], list[int]]
"""The numbers of the rows of a run, by its name and the checksum of its curve."""


@dataclass(frozen=True)
class Rows:
    """The rows of some files that hold."""

    table: pa.Table
    """The columns that were asked for."""
    files: list[Origin]
    """Those that were not set aside."""
    owners: Int64[np.ndarray, " rows"]
    """The number of each row's file."""
    numbers: Int64[np.ndarray, " rows"]
    """The number of each row in its file."""
    faults: dict[Path, str]
    """What is wrong with a row of some of these files, whose other rows hold."""


@dataclass(frozen=True)
class Curves:
    """The points of some runs, run after run."""

    table: pa.Table
    files: list[Origin]
    """Where they were found."""
    unused: list[Origin]
    """Files in which no curve of a row is."""
    lost: set[str]
    """Runs whose row was written with a curve that is nowhere."""


@dataclass(frozen=True)
class _Part:
    """The rows of a file, or of a thousand files of one row, that hold."""

    table: pa.Table
    files: list[Origin]
    owners: Int64[np.ndarray, " rows"]
    numbers: Int64[np.ndarray, " rows"]
    faults: list[str]
    """What is wrong with the other rows of a file of many."""


@dataclass(frozen=True)
class _Matches:
    """The curves in a part of some files that belong to a row."""

    table: pa.Table
    lengths: Int64[np.ndarray, " curves"]
    rows: list[int]
    """The number of each curve's row."""
    files: list[Origin]
    """The file of each curve."""


def rows_of(folder: Folder, *, trusts_seals: bool = False, names: Sequence[str] = RUNS.names) -> pa.Table:
    """Each run of a store once, in the order of a report; with ``trusts_seals`` as readers need it.

    Args:
        folder: The store's.
        trusts_seals: Take the seal of a file for the checksums of its rows.
        names: The columns to return. The values of all columns are checked.
    """
    needed = list(dict.fromkeys((*names, *_DECIDING, *_ORDER)))
    return newest(row_files(folder, trusts_seals=trusts_seals, names=needed).table).select(list(names))


def outline_of(folder: Folder, names: Sequence[str]) -> pa.Table:
    """Some columns of each run, in the order of a report; looks at no row of a sealed file, decodes nothing else."""
    needed = list(dict.fromkeys((*names, *_DECIDING, *_ORDER)))
    return newest(row_files(folder, trusts_seals=True, is_outline=True, names=needed).table).select(list(names))


def row_files(
    folder: Folder,
    *,
    trusts_seals: bool = False,
    is_outline: bool = False,
    names: Sequence[str] = RUNS.names,
    run_ids: Container[str] | None = None,
) -> Rows:
    """The rows of every file that hold, under the ids of this schema; what does not hold is set aside or reported.

    Args:
        folder: The store's.
        trusts_seals: Take the seal of a file for the checksums of its rows.
        is_outline: Take it for their values too.
        names: The columns to return.
        run_ids: Read only the files of these runs, and no file of many rows.
    """

    def look(file: File) -> _Part:
        if is_outline and file.origin.is_sealed:
            table = file.table(list(dict.fromkeys((*names, "schema_version"))))
            if table.num_rows and is_readable(table) and not is_older(table):
                return _part_of(file, [table.select(list(names))], [np.arange(table.num_rows)], [])
        return _examined(file, names, trusts_seals=trusts_seals)

    parts = [_singles(folder, files, names) for files in folder.small_files("runs", run_ids)]
    if run_ids is None:
        parts += folder.of_compact_files("runs", look)
    faults: dict[Path, str] = {}
    for part in parts:
        for fault in part.faults:
            folder.report(part.files[0].path, fault, is_moved=False)
            faults.setdefault(part.files[0].path, fault)
    num_before = np.cumsum([0, *(len(part.files) for part in parts)])
    schema = pa.schema([RUNS.field(name) for name in names])
    return Rows(
        stack(schema, [part.table for part in parts]),
        [file for part in parts for file in part.files],
        _joined([part.owners + before for part, before in zip(parts, num_before, strict=False)]),
        _joined([part.numbers for part in parts]),
        faults,
    )


def gathered(rows: Rows, wanted: Int64[np.ndarray, " wanted"]) -> pa.Table:
    """All columns of some rows, in the order in which they are wanted, read once more.

    A row is left out if a writer has replaced its file since.

    Raises:
        StoreError: If a file of many rows has changed since.
    """
    order = np.lexsort((rows.numbers[wanted], rows.owners[wanted]))
    owners, numbers = rows.owners[wanted][order], rows.numbers[wanted][order]
    tables: list[pa.Table] = []
    is_there = np.ones(len(wanted), dtype=bool)
    for owner in np.unique(owners).tolist():
        first, last = np.searchsorted(owners, [owner, owner + 1])
        origin = rows.files[owner]
        file = read(origin.path)
        if isinstance(file, File) and file.origin == origin:
            tables += _taken(file, numbers[first:last])
        elif origin.path.parent.name == "compact":
            raise StoreError(f"{origin.path} was changed while the store was compacted; nothing was deleted")
        else:
            is_there[first:last] = False
        if len(tables) > SMALL_AT_ONCE:
            tables = [stack(RUNS, tables)]
    places = np.argsort(order[is_there])
    return stack(RUNS, tables).take(pa.array(places)).combine_chunks()


def _taken(file: File, numbers: Int64[np.ndarray, " wanted"]) -> Iterator[pa.Table]:
    """Some rows of a file by their number, in ascending order, under the ids of this schema."""
    start = 0
    for batch in file.batches():
        first, last = np.searchsorted(numbers, [start, start + batch.num_rows])
        if last > first:
            yield migrated(batch.take(pa.array(numbers[first:last] - start)))
        start += batch.num_rows


def _singles(folder: Folder, files: Sequence[tuple[Origin, pa.Table]], names: Sequence[str]) -> _Part:
    """The rows of files of one row; a file whose row does not hold is set aside."""
    # One look at all of them: thousands of tables of one row are slow to look at one by one.
    are_readable = is_readable(stack(RUNS, [table for _, table in files]))
    kept = []
    for origin, table in files:
        if table.num_rows and (are_readable or is_readable(table)):
            kept.append((origin, table))
        else:
            folder.set_aside(origin.path, "it holds no readable row", origin.identity)
    table = stack(RUNS, [table for _, table in kept])
    faults = _faults(table, [origin.path for origin, _ in kept], is_sealed=False)
    for index, fault in faults.items():
        folder.set_aside(kept[index][0].path, fault, kept[index][0].identity)
    good = np.setdiff1d(np.arange(table.num_rows), list(faults))
    return _Part(
        migrated(table.take(pa.array(good))).select(list(names)),
        [kept[index][0] for index in good],
        np.arange(len(good)),
        np.zeros(len(good), dtype=np.int64),
        [],
    )


def _examined(file: File, names: Sequence[str], *, trusts_seals: bool) -> _Part:
    """The rows of a file of many rows that hold.

    Raises:
        Damaged: If it cannot be decoded or holds no readable row.
    """
    tables, numbers, faults = [], [], list[str]()
    start = 0
    for batch in file.batches():
        if not is_readable(batch):
            raise Damaged("it holds no readable row")
        is_sealed = trusts_seals and file.origin.is_sealed
        at = _faults(batch, [file.origin.path] * batch.num_rows, is_sealed=is_sealed)
        good = np.setdiff1d(np.arange(batch.num_rows), list(at))
        held = batch.take(pa.array(good)) if at else batch
        tables.append(migrated(held).select(list(names)))
        numbers.append(start + good)
        faults += at.values()
        start += batch.num_rows
    if not start:
        raise Damaged("it holds no readable row")
    return _part_of(file, tables, numbers, faults)


def _part_of(file: File, tables: list[pa.Table], numbers: list[np.ndarray], faults: list[str]) -> _Part:
    joined = _joined(numbers)
    return _Part(pa.concat_tables(tables), [file.origin], np.zeros_like(joined), joined, faults)


def _joined(arrays: Sequence[np.ndarray]) -> Int64[np.ndarray, " all"]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])


def newest(table: pa.Table) -> pa.Table:
    """Each run once, in the order of a report: :func:`newest_numbers` of these rows."""
    return table.take(newest_numbers(table)).combine_chunks()


def newest_numbers(table: pa.Table) -> pa.Array:
    """The row of each run that finished last, by the hash where two finished together, in the order of a report.

    Rows that became one run by migration were made by different sources: of these a failure never replaces a result.
    """
    is_ok = pc.match_like(table["status"], "ok")  # a comparison with a text would import pandas
    is_result = pc.or_(is_ok, pc.is_null(table["migrated_from"]))
    by_age = _sorted(table.append_column("is_result", is_result), ("run_id", "is_result", "finished_at", "row_sha256"))
    names = table["run_id"].take(by_age).combine_chunks()
    is_followed = pc.equal(names[:-1], names[1:])
    last = pa.concat_arrays([by_age[:-1].filter(pc.invert(is_followed)), by_age[-1:]])
    return last.take(_sorted(table.select(_ORDER).take(last), _ORDER))


def are_of_other_sources(table: pa.Table, kept: pa.Table) -> pa.Array:
    """Which rows another one replaces only because migration made one run of both: nobody made them again."""

    def names_of(rows: pa.Table) -> list[tuple[str, tuple[str, str] | None]]:
        return list(zip(rows["run_id"].to_pylist(), map(stated_name, rows["migrated_from"].to_pylist()), strict=True))

    kept_as = {run_id: before[0] for run_id, before in names_of(kept) if before is not None}
    is_other = [
        before is not None and kept_as.get(run_id, before[0]) != before[0] for run_id, before in names_of(table)
    ]
    return pa.array(is_other, pa.bool_())


def only(rows: pa.Table, run_ids: Iterable[str]) -> pa.Table:
    """The rows of some runs."""
    return rows.filter(pc.is_in(rows["run_id"], pa.array(set(run_ids), pa.string())))


def curves_of(folder: Folder, rows: pa.Table, *, is_part: bool = False) -> Curves:
    """The curve of each row that has one; a row whose curve is lost is reported.

    Args:
        folder: The store's.
        rows: With their columns ``run_id``, ``migrated_from`` and ``curve_sha256``.
        is_part: Whether these are some rows of many: files of other runs are not looked at.
    """
    before = [(stated_name(text) or ("", ""))[0] for text in rows["migrated_from"].to_pylist()]
    names, checksums = rows["run_id"].to_pylist(), rows["curve_sha256"].to_pylist()
    wanted: _Wanted = {}
    for number, (name, name_before, checksum) in enumerate(zip(names, before, checksums, strict=True)):
        for key in {(name, checksum), (name_before, checksum)}:
            wanted.setdefault(key, []).append(number)
    run_ids = {name for name, _ in wanted}
    seen: list[Origin] = []
    matches: list[_Matches] = []
    for files in folder.small_files("curves", run_ids if is_part else None):
        readable = [(origin, table) for origin, table in files if is_readable(table)]
        seen += [origin for origin, _ in readable]
        matches.append(_matched(readable, wanted, run_ids))
    for origin, of_file in folder.of_compact_files("curves", lambda file: _matched_in(file, wanted, run_ids)):
        seen += origin
        matches += of_file
    rows_found = _joined([np.array(match.rows, dtype=np.int64) for match in matches])
    lengths = _joined([match.lengths for match in matches])
    owners = [file for match in matches for file in match.files]
    found, chosen = np.unique(rows_found, return_index=True)  # the first of several
    lost = {
        names[number] for number in np.setdiff1d(np.arange(len(names)), found).tolist() if checksums[number] is not None
    }
    for name in (name for name in names if name in lost):
        path = folder.root / "curves" / f"run-{name}.parquet"
        folder.report(path, "the curve of this run is missing or does not belong to its row", is_moved=False)
    points = stack(CURVES, [match.table for match in matches])
    taken = points.take(pa.array(_spans((np.cumsum(lengths) - lengths)[chosen], lengths[chosen])))
    used = {owners[number] for number in chosen.tolist()}
    names_of_points = rows["run_id"].take(pa.array(np.repeat(found, lengths[chosen])))
    return Curves(
        taken.set_column(0, CURVES.field(0), names_of_points).combine_chunks(),
        [origin for origin in seen if origin in used],
        [origin for origin in seen if origin not in used],
        lost,
    )


def verifications_of(folder: Folder) -> dict[tuple[str, str], str]:
    """Who says that a row was run again, by its run_id and checksum; the latest word counts."""
    said: list[dict[str, Any]] = []
    for origin, table in folder.verified_files():
        try:
            entries = table.to_pylist()
            for entry in entries:
                check_values(VERIFICATION_COLUMNS, entry)
        except (pa.ArrowException, ValueError, OverflowError, UsageError) as fault:
            folder.set_aside(origin.path, f"a value cannot be read: {fault}")
            continue
        said += entries
    return {
        (entry["run_id"], entry["row_sha256"]): (
            f"{entry['verified_by']} ({entry['verdict']}, synthbench {entry['synthbench_version']}, "
            f"{entry['verified_at']:%Y-%m-%d})"
        )
        for entry in sorted(said, key=lambda entry: (entry["verified_at"], entry["verified_by"]))
    }


# A quick look at many rows at once: which of them have to be looked at one by one.


def is_readable(table: pa.Table) -> bool:
    """Whether every value of a table can be had in Python: text in UTF-8, times in years of four digits."""
    try:
        table.validate(full=True)
    except pa.ArrowException:
        return False
    return all(_has_four_digit_years(column) for column in table.columns if pa.types.is_timestamp(column.type))


def suspects(columns: Iterable[Column], table: pa.Table) -> Bool[np.ndarray, " rows"]:
    """Which rows of a readable table ``check_values`` might refuse; it may name a row too many, never one too few."""
    is_suspect = np.zeros(table.num_rows, dtype=bool)
    text_bytes = np.zeros(table.num_rows, dtype=np.int64)
    for column in columns:
        values = table[column.name].combine_chunks()
        if not column.is_nullable and values.null_count:
            is_suspect |= _as_numpy(values.is_null())
        if pa.types.is_string(values.type):
            text_bytes += _as_numpy(pc.binary_length(values).fill_null(0))
            if column.type == "string" and not column.choices:
                continue  # only its length counts
            distinct = values.dictionary_encode()
            refused = [index for index, word in enumerate(distinct.dictionary.to_pylist()) if _is_refused(column, word)]
            if refused:
                is_suspect |= np.isin(_as_numpy(distinct.indices.fill_null(-1)), refused)
    return is_suspect | (text_bytes > MAX_TEXT_BYTES)


def _is_refused(column: Column, value: str) -> bool:
    try:
        check_values((column,), {column.name: value})
    except UsageError:
        return True
    return False


def _has_four_digit_years(moments: pa.ChunkedArray) -> bool:
    ends = pc.min_max(moments.cast(pa.int64())).as_py()  # a comparison with a number would import pandas
    return ends["min"] is None or (ends["min"] >= _FIRST_US and ends["max"] <= _LAST_US)


def _as_numpy(array: pa.Array) -> np.ndarray:
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _sorted(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """The numbers of the rows in the order of some columns."""
    return pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])


def _matched_in(file: File, wanted: _Wanted, run_ids: Container[str]) -> tuple[list[Origin], list[_Matches]]:
    """The curves of rows in a file of many; that file, unless it is unreadable."""
    matches = []
    rest = stack(CURVES, [])
    for batch in file.batches(num_rows=BATCH_POINTS):
        if not is_readable(batch):
            return [], []
        points = stack(CURVES, [rest, batch])
        last = int(curve_starts(points)[-1])  # it may go on in the next batch
        matches.append(_matched([(file.origin, points.slice(0, last))], wanted, run_ids))
        rest = points.slice(last)
    matches.append(_matched([(file.origin, rest)], wanted, run_ids))
    return [file.origin], matches


def _matched(files: Sequence[tuple[Origin, pa.Table]], wanted: _Wanted, run_ids: Container[str]) -> _Matches:
    """The curves of rows in some files that end with a whole curve."""
    table = stack(CURVES, [table for _, table in files])
    bounds = np.cumsum([0, *(table.num_rows for _, table in files)])
    # A run's points lie together, and those of two files are two curves.
    starts = np.union1d(curve_starts(table), bounds[:-1][np.diff(bounds) > 0])
    lengths = np.diff(starts, append=table.num_rows)
    owners = np.repeat(np.arange(len(starts)), lengths)
    names = table["run_id"].take(pa.array(starts)).to_pylist()
    is_kept = np.array([name in run_ids for name in names], dtype=bool)
    is_kept[owners[suspects(CURVE_COLUMNS, table)]] = False
    table = table.filter(pa.array(is_kept[owners]))
    origins = (np.searchsorted(bounds, starts, side="right") - 1)[is_kept].tolist()
    lengths = lengths[is_kept]
    starts = np.cumsum(lengths) - lengths
    points = table.to_pydict()
    rows, chosen = [], []
    for number, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        curve = {column: values[start : start + length] for column, values in points.items()}
        for row in wanted.get((curve["run_id"][0], curve_sha256(curve)), ()):
            rows.append(row)
            chosen.append(number)
    spans = _spans(starts[chosen], lengths[chosen])
    return _Matches(
        table.take(pa.array(spans)), lengths[chosen], rows, [files[origins[number]][0] for number in chosen]
    )


def _spans(starts: Int64[np.ndarray, " spans"], lengths: Int64[np.ndarray, " spans"]) -> Int64[np.ndarray, " points"]:
    """The numbers of the points in each span, one span after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _faults(table: pa.Table, paths: Sequence[Path], *, is_sealed: bool) -> dict[int, str]:
    """Why some rows of a readable table cannot be trusted, by their number.

    Args:
        table: Rows.
        paths: The file of each.
        is_sealed: Look at a row by itself only if a quick look at the values of all finds something.
    """
    is_doubtful = np.ones(table.num_rows, dtype=bool)
    if is_sealed:
        are_names = pc.match_substring_regex(table["run_id"], f"^{RUN_ID.pattern}$").to_numpy()
        is_doubtful = suspects(RUN_COLUMNS, table) | ~are_names.astype(bool)
    doubtful = table if is_doubtful.all() else table.filter(pa.array(is_doubtful))
    numbers = np.flatnonzero(is_doubtful).tolist()
    faults = {number: _fault_of(row, paths[number]) for number, row in zip(numbers, doubtful.to_pylist(), strict=True)}
    return {number: fault for number, fault in faults.items() if fault is not None}


def _fault_of(row: Mapping[str, Any], path: Path) -> str | None:
    """Why a row in a file cannot be trusted; None if it can."""
    try:
        check_values(RUN_COLUMNS, row)
    except UsageError as error:
        return str(error)
    name = row["run_id"]
    if row_sha256(row) != row["row_sha256"]:
        return f"the checksum of run {name[:16]!r} is wrong"
    if not RUN_ID.fullmatch(name):
        return f"run_id is {name[:40]!r}; allowed: 16 hex digits"
    if path.parent.name == "runs" and path.name != f"run-{name}.parquet":
        return f"it holds run {name}"
    return None
