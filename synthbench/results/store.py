"""A store of rows and learning curves: a row is either complete and checksummed or absent.

:mod:`synthbench.results.folder` has the layout of the files, :mod:`synthbench.results.reading` says which rows count.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from synthbench.errors import StoreError, UsageError
from synthbench.results.files import FILE_ROWS, Identity, encode, identity_of
from synthbench.results.folder import RUN_ID, Folder, Quarantined
from synthbench.results.migration import former, stated_name
from synthbench.results.reading import (
    INDEX,
    are_of_other_sources,
    curves_of,
    gathered,
    newest_numbers,
    only,
    outline_of,
    row_files,
    rows_of,
    verifications_of,
)
from synthbench.results.schema import (
    CURVE_COLUMNS,
    RUN_COLUMNS,
    RUNS,
    SCHEMA_VERSION,
    VERIFICATION_COLUMNS,
    check_values,
    curve_sha256,
    row_sha256,
    table_of,
    to_frame,
)

if TYPE_CHECKING:
    import pandas as pd

_PACKAGE = Path(__file__).parents[1]


PACKAGED = "packaged"
"""The name of the store of the rows that come with synthbench."""


def published() -> Path:
    """The store of the rows that come with synthbench; in a checkout it is the folder ``results``."""
    # In a checkout it is a link to the folder, which some systems check out as a file of text.
    return _PACKAGE / "published" if (_PACKAGE / "published").is_dir() else _PACKAGE.parent / "results"


class Store:
    """Rows and learning curves in a folder; get one from :meth:`open`."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    @classmethod
    def open(cls, root: Path, *, create: bool) -> "Store":
        """Open a store; with ``create`` also for writing, making the folder if there is none.

        Opening or reading without ``create`` changes nothing on the disk.

        Raises:
            StoreError: If there is no store, it cannot be written, or a newer synthbench made it.
        """
        folder = Folder(root, is_writable=create)
        if not create and not root.is_dir():
            raise StoreError(f"no results store at {root}: {'not a folder' if root.exists() else 'no such folder'}")
        if not create or (root / "store.json").exists():
            folder.check_format()
        if create:
            folder.prepare()
        return cls(folder)

    @property
    def root(self) -> Path:
        """The folder."""
        return self.folder.root

    @property
    def quarantined(self) -> list[Quarantined]:
        """What readers of this object left out so far; code that prints a report prints this too."""
        return self.folder.quarantined

    def uncompacted(self, run_ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """The readable rows of some runs that have files of their own, by run_id; quick however many there are."""
        rows = row_files(self.folder, run_ids=run_ids).table.to_pylist()
        return {row["run_id"]: row for row in rows}

    def identities(self, run_ids: Iterable[str]) -> dict[str, Identity]:
        """What tells the file of a run from one that replaces it, by run_id; runs without a file are left out."""
        identities = {name: identity_of(self.root / "runs" / f"run-{name}.parquet") for name in run_ids}
        return {name: identity for name, identity in identities.items() if identity is not None}

    def outline(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of every readable row once, in the order of :meth:`table`; quick where one file has many rows.

        Raises:
            StoreError: If a newer synthbench wrote one of the rows.
        """
        if "verified_by" in columns:  # what a file says of itself does not count
            return self.table().select(list(columns))
        return outline_of(self.folder, columns)

    def statuses(self) -> dict[str, str]:
        """The status of every readable row, by run_id."""
        run_ids, statuses = (column.to_pylist() for column in self.outline(("run_id", "status")).itercolumns())
        return dict(zip(run_ids, statuses, strict=True))

    def write(self, row: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]) -> None:
        """Append a finished run, or replace the row of the same ``run_id``; safe to kill at any time.

        Args:
            row: Every column of ``RUNS``; the store itself fills ``schema_version``, ``curve_sha256``, ``row_sha256``.
            curve: Points with every column of ``CURVES``; ``run_id`` may be absent. May be empty.

        Raises:
            UsageError: If a key or a value does not fit the schema.
            StoreError: If the disk is full or the store cannot be written.
        """
        self.write_all([(row, curve)])

    def write_all(self, runs: Iterable[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]) -> None:
        """Append finished runs as :meth:`write` does, in far less time than one after the other.

        Args:
            runs: Row and curve of each; nothing is written if one does not fit the schema.

        Raises:
            UsageError: If a key or a value does not fit the schema.
            StoreError: If the disk is full or the store cannot be written; then some may be there.
        """
        self.folder.require_writable()
        rows, curves = dict[Path, bytes](), dict[Path, bytes]()
        for row, points in runs:
            name, made, curve = _encoded(row, points)
            rows[self.root / "runs" / name] = made
            if curve is not None:
                curves[self.root / "curves" / name] = curve
        with self.folder.writing():  # of two writers of one run, neither's row gets the other's curve
            self.folder.commit_all(curves)
            self.folder.commit_all(rows)

    def table(self, *, is_checked: bool = False, columns: Sequence[str] = RUNS.names) -> pa.Table:
        """Every readable row once, in an order that does not depend on files; null and NaN stay apart.

        ``verified_by`` is what the store's own side table says, whatever a row's file says of itself.

        Args:
            is_checked: Compute the checksum of every row. By default a file of many rows whose name is the hash of its
                bytes stands for those of its rows, which is enough where the store is one's own.
            columns: Those to return. Unlike in :meth:`outline` the values of all columns are checked.

        Raises:
            StoreError: If a newer synthbench wrote one of the rows.
        """
        if "verified_by" not in columns:
            return rows_of(self.folder, trusts_seals=not is_checked, names=columns)
        return self._with_verifications(rows_of(self.folder, trusts_seals=not is_checked)).select(list(columns))

    def runs(self, *, is_checked: bool = False) -> "pd.DataFrame":
        """:meth:`table` for pandas: see :func:`synthbench.results.schema.to_frame`."""
        return to_frame(self.table(is_checked=is_checked))

    def curves(self, run_ids: Iterable[str] | None = None) -> "pd.DataFrame":
        """The learning curves of some runs (None: of all), in the order of :meth:`runs`.

        A curve counts only if it is the one that its row was written with.
        """
        rows = rows_of(self.folder, trusts_seals=True)
        return to_frame(curves_of(self.folder, rows if run_ids is None else only(rows, run_ids)).table)

    def read(self, *, is_checked: bool = False) -> "tuple[pd.DataFrame, pd.DataFrame]":
        """:meth:`runs` and :meth:`curves` of one moment; the rows are read once."""
        rows = rows_of(self.folder, trusts_seals=not is_checked)
        return to_frame(self._with_verifications(rows)), to_frame(curves_of(self.folder, rows).table)

    def verify(self, verifications: Sequence[Mapping[str, Any]]) -> None:
        """Record that rows were run again and came out the same.

        Args:
            verifications: Every column of ``VERIFICATIONS``, a row each. Rows that the store has not stay unverified.

        Raises:
            UsageError: If a key or a value does not fit the schema.
            StoreError: If the store cannot be written.
        """
        self.folder.require_writable()
        table = table_of(VERIFICATION_COLUMNS, verifications)
        for verification in verifications:
            check_values(VERIFICATION_COLUMNS, verification)
        if verifications:
            content = encode("verified", table)
            name = f"verified-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
            self.folder.commit(content, self.root / "verified" / name)

    def adopt(self, other: "Store", run_ids: Iterable[str] | None = None) -> int:
        """Add rows of another store (None: all) with their curves, unchanged; return how many are new to this one.

        What the other store says of verifications stays there: it is its own word.

        Raises:
            StoreError: If this store cannot be written, or another process is compacting it.
        """
        with self.folder.alone():
            known = rows_of(self.folder)["row_sha256"]
            rows = rows_of(other.folder) if run_ids is None else only(rows_of(other.folder), run_ids)
            rows = rows.filter(pc.invert(pc.is_in(rows["row_sha256"], known.combine_chunks())))
            self.folder.commit_rows(rows, curves_of(other.folder, rows).table)
        return int(rows.num_rows)

    def admit(self, other: "Store", checksums: Collection[str]) -> int:
        """Add those rows of another store that have one of some checksums, with their curves; how many were added.

        A run that this store has keeps its row, whatever the other's says.

        Raises:
            StoreError: If this store cannot be written, or another process is compacting it.
        """
        with self.folder.alone():
            known, found = rows_of(self.folder), rows_of(other.folder)
            is_wanted = pc.is_in(found["row_sha256"], pa.array(checksums, pa.string()))
            is_known = pc.is_in(found["run_id"], known["run_id"].combine_chunks())
            rows = found.filter(pc.and_(is_wanted, pc.invert(is_known)))
            self.folder.commit_rows(rows, curves_of(other.folder, rows).table)
        return int(rows.num_rows)

    def compact(self, *, without: Collection[str] = ()) -> int:
        """Merge all files into one of runs and one of curves; return how many small files were merged.

        Nothing is deleted before its replacement was read back.

        Args:
            without: Runs whose rows go to ``quarantine/`` instead.

        Raises:
            StoreError: If the store cannot be written or another process is compacting it.
        """
        folder = self.folder
        with folder.alone():
            for path in folder.stale_partials():
                path.unlink(missing_ok=True)
            sources = row_files(folder, names=INDEX)
            chosen = newest_numbers(sources.table).to_numpy().astype(np.int64)
            are_others = are_of_other_sources(sources.table, sources.table.take(chosen)).to_numpy(zero_copy_only=False)
            if (others := np.flatnonzero(are_others)).size:
                folder.exhibit(encode("runs", gathered(sources, others)), "rows-of-another-source")
                curves = curves_of(folder, sources.table.take(others))
                folder.exhibit(encode("curves", curves.table), "curves-of-another-source")
            if without:
                is_without = pc.is_in(sources.table["run_id"].take(chosen), pa.array(without, pa.string())).to_numpy()
                folder.exhibit(encode("runs", gathered(sources, chosen[is_without])), "rows-without-curve")
                chosen = chosen[~is_without]
            old = folder.compact_paths("runs", "curves")
            kept, merged = set[Path](), sources.files
            # Of so many rows at a time as one file holds: a million with their curves take 5 GB.
            parts = np.split(chosen, range(FILE_ROWS, len(chosen), FILE_ROWS))
            for part in parts:
                curves = curves_of(folder, sources.table.take(part), is_part=len(parts) > 1)
                kept |= folder.commit_pieces("curves", curves.table)
                merged = merged + curves.files
            for part in parts:
                kept |= folder.commit_pieces("runs", gathered(sources, part))
            num_merged = folder.remove([file for file in merged if file.path not in old])
            for path in old:
                if path in sources.faults:
                    folder.set_aside(path, sources.faults[path])
                elif path not in kept:
                    path.unlink(missing_ok=True)
        return num_merged

    def _with_verifications(self, rows: pa.Table) -> pa.Table:
        said = verifications_of(self.folder)
        names = zip(*(rows[name].to_pylist() for name in ("run_id", "row_sha256", "migrated_from")), strict=True)
        words = []
        for index, (run_id, checksum, migrated_from) in enumerate(names):
            before = stated_name(migrated_from)
            # What was said of a row holds for what it has become, if it is that row: anyone can write migrated_from.
            is_that_row = before in said and former(rows.slice(index, 1).to_pylist()[0]) is not None
            words.append(said.get((run_id, checksum)) or (said[before] if before and is_that_row else None))
        place = RUNS.get_field_index("verified_by")
        return rows.set_column(place, RUNS.field(place), pa.array(words, pa.string()))


def _encoded(row: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]) -> tuple[str, bytes, bytes | None]:
    """The name of a run's files, and their contents; None where it has no curve.

    Raises:
        UsageError: If a key or a value does not fit the schema.
    """
    name = row.get("run_id")
    if not isinstance(name, str) or not RUN_ID.fullmatch(name):
        raise UsageError(f"run_id is {name!r}; allowed: 16 hex digits")
    points = table_of(CURVE_COLUMNS, [{"run_id": name, **point} for point in curve])
    columns = points.to_pydict()
    if any(owner != name for owner in columns["run_id"]):
        raise UsageError(f"the curve of run {name} has points of another run")
    for point in points.to_pylist():
        check_values(CURVE_COLUMNS, point)
    filled = {
        **row,
        "schema_version": SCHEMA_VERSION,
        "curve_sha256": curve_sha256(columns) if curve else None,
        "row_sha256": "",
    }
    stored = table_of(RUN_COLUMNS, [filled]).to_pylist()[0]
    stored["row_sha256"] = row_sha256(stored)
    check_values(RUN_COLUMNS, stored)
    made = encode("runs", table_of(RUN_COLUMNS, [stored]))
    return f"run-{name}.parquet", made, encode("curves", points) if curve else None
