"""What counts of the files in a store: the rows that hold, each run once; the curve of each; who ran a row again.

A file of many rows is *sealed* while its name is the hash of its bytes: no accident has changed a row in it since it
was written, from rows that hold. So readers take the seal for the checksums of its rows. A seal does not say who wrote
the file: the values are checked nevertheless, and the checksums too before rows enter another file or are vouched for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from synthbench.errors import UsageError
from synthbench.results.files import File, stack
from synthbench.results.folder import RUN_ID, Folder
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

MAX_TEXT_BYTES = 2**16
"""A row with more text than this is always looked at by itself."""

# The years 1 to 9999 in microseconds: what lies outside, Python cannot name.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


@dataclass(frozen=True)
class Rows:
    """The rows of some files that hold."""

    table: pa.Table
    paths: list[Path]
    """The file of each row."""
    files: list[File]
    """Those that were not set aside."""
    faults: dict[Path, str]
    """What is wrong with a row of some of these files, whose other rows hold."""


@dataclass(frozen=True)
class Curves:
    """The points of some runs, run after run."""

    table: pa.Table
    files: list[File]
    """Where they were found."""
    unused: list[File]
    """Files in which no curve of a row is."""
    lost: set[str]
    """Runs whose row was written with a curve that is nowhere."""


@dataclass(frozen=True)
class _Points:
    """The points of some runs in some files, those that could be a curve's."""

    table: pa.Table
    starts: Int64[np.ndarray, " curves"]
    lengths: Int64[np.ndarray, " curves"]
    origins: Int64[np.ndarray, " curves"]
    """Which of the files each curve is from."""


def rows_of(folder: Folder, *, trusts_seals: bool = False) -> pa.Table:
    """Each run of a store once, in the order of a report; with ``trusts_seals`` as readers need it."""
    return newest(row_files(folder, trusts_seals=trusts_seals).table)


def outline_of(folder: Folder, columns: Sequence[str]) -> pa.Table:
    """Some columns of each run, in the order of a report; looks at no row of a sealed file."""
    needed = list(dict.fromkeys((*columns, *_DECIDING, *_ORDER)))
    sealed: list[File] = []
    others: list[File] = []
    for file in folder.small_files("runs") + folder.compact_files("runs"):
        is_known = file.is_sealed and is_readable(file.table.select(needed)) and not is_older(file.table)
        (sealed if is_known else others).append(file)
    tables = [file.table for file in sealed]
    if others or not sealed:
        tables.append(verified(folder, others, trusts_seals=True).table)
    return newest(pa.concat_tables([table.select(needed) for table in tables])).select(list(columns))


def row_files(folder: Folder, *, trusts_seals: bool = False) -> Rows:
    """The rows of every file; what does not hold is set aside or reported."""
    return verified(folder, folder.small_files("runs") + folder.compact_files("runs"), trusts_seals=trusts_seals)


def verified(folder: Folder, files: Sequence[File], *, trusts_seals: bool = False) -> Rows:
    """The rows of some files that hold, under the ids of this schema; what does not hold is set aside or reported."""
    # One look at all of them: thousands of tables of one row are slow to look at one by one.
    are_readable = is_readable(stack(RUNS, [file.table for file in files]))
    kept = []
    for file in files:
        if file.table.num_rows and (are_readable or is_readable(file.table)):
            kept.append(file)
        else:
            folder.set_aside(file.path, "it holds no readable row", file.identity)
    table = stack(RUNS, [file.table for file in kept])
    owners = [file for file in kept for _ in range(file.table.num_rows)]
    paths = [file.path for file in owners]
    is_good = np.ones(table.num_rows, dtype=bool)
    faults: dict[Path, str] = {}
    are_sealed = np.array([trusts_seals and file.is_sealed for file in owners], dtype=bool)
    for index, fault in _faults(table, paths, are_sealed).items():
        is_good[index] = False
        path = paths[index]
        if path.parent.name == "runs":
            folder.set_aside(path, fault, owners[index].identity)
        else:
            folder.report(path, fault, is_moved=False)
        faults.setdefault(path, fault)
    left = [file for file in kept if file.path.parent.name != "runs" or file.path not in faults]
    good_paths = [path for path, is_kept in zip(paths, is_good, strict=True) if is_kept]
    good = table if is_good.all() else table.filter(pa.array(is_good))
    return Rows(migrated(good), good_paths, left, faults)


def newest(table: pa.Table) -> pa.Table:
    """Each run once, in the order of a report: the row that finished last, by the hash where two finished together.

    Rows that became one run by migration were made by different sources: of these a failure never replaces a result.
    """
    is_ok = pc.match_like(table["status"], "ok")  # a comparison with a text would import pandas
    is_result = pc.or_(is_ok, pc.is_null(table["migrated_from"]))
    by_age = _sorted(table.append_column("is_result", is_result), ("run_id", "is_result", "finished_at", "row_sha256"))
    names = table["run_id"].take(by_age).combine_chunks()
    is_followed = pc.equal(names[:-1], names[1:])
    last = pa.concat_arrays([by_age[:-1].filter(pc.invert(is_followed)), by_age[-1:]])
    return table.take(last.take(_sorted(table.select(_ORDER).take(last), _ORDER))).combine_chunks()


def of_other_sources(table: pa.Table, kept: pa.Table) -> pa.Table:
    """Rows that another takes the place of only because migration made one run of both: nobody made them again."""

    def names_of(rows: pa.Table) -> list[tuple[str, tuple[str, str] | None]]:
        return list(zip(rows["run_id"].to_pylist(), map(stated_name, rows["migrated_from"].to_pylist()), strict=True))

    kept_as = {run_id: before[0] for run_id, before in names_of(kept) if before is not None}
    is_other = [
        before is not None and kept_as.get(run_id, before[0]) != before[0] for run_id, before in names_of(table)
    ]
    return table.filter(pa.array(is_other, pa.bool_()))


def only(rows: pa.Table, run_ids: Iterable[str]) -> pa.Table:
    """The rows of some runs."""
    return rows.filter(pc.is_in(rows["run_id"], pa.array(set(run_ids), pa.string())))


def curves_of(folder: Folder, rows: pa.Table) -> Curves:
    """The curve of each row that has one; a row whose curve is lost is reported."""
    files = [file for file in folder.small_files("curves") + folder.compact_files("curves") if is_readable(file.table)]
    before = [(stated_name(text) or ("", ""))[0] for text in rows["migrated_from"].to_pylist()]
    points = _points(files, {*rows["run_id"].to_pylist(), *before})
    names = points.table["run_id"].take(pa.array(points.starts)).to_pylist()
    numbers: dict[tuple[str, str], int] = {}
    for number, (name, start, length) in enumerate(zip(names, points.starts, points.lengths, strict=True)):
        numbers.setdefault((name, curve_sha256(points.table.slice(start, length).to_pydict())), number)
    chosen = []
    owners = []
    lost = set()
    wanted = zip(rows["run_id"].to_pylist(), before, rows["curve_sha256"].to_pylist(), strict=True)
    for name, name_before, checksum in wanted:
        index = numbers.get((name, checksum), numbers.get((name_before, checksum)))
        if index is not None:
            chosen.append(index)
            owners.append(name)
        elif checksum is not None:
            lost.add(name)
            path = folder.root / "curves" / f"run-{name}.parquet"
            folder.report(path, "the curve of this run is missing or does not belong to its row", is_moved=False)
    used = set(points.origins[chosen].tolist())
    taken = points.table.take(pa.array(_spans(points.starts[chosen], points.lengths[chosen])))
    names_of_points = pa.array(np.repeat(np.array(owners, dtype=object), points.lengths[chosen]), pa.string())
    return Curves(
        taken.set_column(0, CURVES.field(0), names_of_points).combine_chunks(),
        [file for number, file in enumerate(files) if number in used],
        [file for number, file in enumerate(files) if number not in used],
        lost,
    )


def verifications_of(folder: Folder) -> dict[tuple[str, str], str]:
    """Who says that a row was run again, by its run_id and checksum; the latest word counts."""
    said: list[dict[str, Any]] = []
    for file in folder.verified_files():
        try:
            entries = file.table.to_pylist()
            for entry in entries:
                check_values(VERIFICATION_COLUMNS, entry)
        except (pa.ArrowException, ValueError, OverflowError, UsageError) as fault:
            folder.set_aside(file.path, f"a value cannot be read: {fault}")
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


def _points(files: Sequence[File], run_ids: Iterable[str]) -> _Points:
    table = stack(CURVES, [file.table for file in files])
    bounds = np.cumsum([0, *(file.table.num_rows for file in files)])
    # A run's points lie together, and those of two files are two curves.
    starts = np.union1d(_curve_starts(table), bounds[:-1][np.diff(bounds) > 0])
    lengths = np.diff(starts, append=table.num_rows)
    origins = np.searchsorted(bounds, starts, side="right") - 1
    owners = np.repeat(np.arange(len(starts)), lengths)
    is_wanted = pc.is_in(table["run_id"].take(pa.array(starts)), pa.array(run_ids, pa.string()))
    is_kept = np.array(is_wanted.to_pylist(), dtype=bool)
    is_kept[owners[suspects(CURVE_COLUMNS, table)]] = False
    if not is_kept.all():
        table = table.filter(pa.array(is_kept[owners]))
    lengths, origins = lengths[is_kept], origins[is_kept]
    return _Points(table, np.cumsum(lengths) - lengths, lengths, origins)


def _curve_starts(table: pa.Table) -> Int64[np.ndarray, " curves"]:
    """Where the points of another run begin, in a table of points."""
    if not table.num_rows:
        return np.zeros(0, dtype=np.int64)
    ends = pc.run_end_encode(table["run_id"].combine_chunks()).run_ends.to_numpy()
    return np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1].astype(np.int64)])


def _spans(starts: Int64[np.ndarray, " spans"], lengths: Int64[np.ndarray, " spans"]) -> Int64[np.ndarray, " points"]:
    """The numbers of the points in each span, one span after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def _faults(table: pa.Table, paths: Sequence[Path], are_sealed: Bool[np.ndarray, " rows"]) -> dict[int, str]:
    """Why some rows of a readable table cannot be trusted, by their number.

    Args:
        table: Rows of many files.
        paths: The file of each.
        are_sealed: Rows that are looked at one by one only if a quick look at their values finds something.
    """
    is_doubtful = ~are_sealed
    if are_sealed.any():
        are_names = pc.match_substring_regex(table["run_id"], f"^{RUN_ID.pattern}$").to_numpy()
        is_doubtful |= suspects(RUN_COLUMNS, table) | ~are_names.astype(bool)
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
