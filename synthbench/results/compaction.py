"""Merges the files of single runs into one of many; nothing is deleted before its replacement was read back."""

from collections.abc import Collection

import pyarrow as pa

from synthbench.results.files import encode
from synthbench.results.folder import Folder
from synthbench.results.migration import stated_name
from synthbench.results.reading import curves_of, newest, only, row_files


def compact(folder: Folder, *, without: Collection[str] = ()) -> int:
    """Merge all files into one of runs and one of curves; return how many small files were merged.

    Args:
        folder: Of the store.
        without: Runs whose rows go to ``quarantine/`` instead.

    Raises:
        StoreError: If the store cannot be written or another process is compacting it.
    """
    with folder.alone():
        for path in folder.stale_partials():
            path.unlink(missing_ok=True)
        sources = row_files(folder)
        rows = newest(sources.table)
        if (others := of_other_sources(sources.table, rows)).num_rows:
            folder.exhibit(encode("runs", others), "rows-of-another-source")
            folder.exhibit(encode("curves", curves_of(folder, others).table), "curves-of-another-source")
        if without:
            folder.exhibit(encode("runs", only(rows, without)), "rows-without-curve")
            rows = only(rows, set(rows["run_id"].to_pylist()).difference(without))
        curves = curves_of(folder, rows)
        old = folder.compact_paths("runs", "curves")
        kept = folder.commit_rows(rows, curves.table)
        num_merged = folder.remove([file for file in sources.files + curves.files if file.path not in old])
        for path in old:
            if path in sources.faults:
                folder.set_aside(path, sources.faults[path])
            elif path not in kept:
                path.unlink(missing_ok=True)
    return num_merged


def of_other_sources(table: pa.Table, kept: pa.Table) -> pa.Table:
    """Rows that another takes the place of only because migration made one run of both: nobody made them again."""

    def names_of(rows: pa.Table) -> list[tuple[str, tuple[str, str] | None]]:
        return list(zip(rows["run_id"].to_pylist(), map(stated_name, rows["migrated_from"].to_pylist()), strict=True))

    kept_as = {run_id: before[0] for run_id, before in names_of(kept) if before is not None}
    is_other = [
        before is not None and kept_as.get(run_id, before[0]) != before[0] for run_id, before in names_of(table)
    ]
    return table.filter(pa.array(is_other, pa.bool_()))
