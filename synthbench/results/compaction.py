"""Many files of one run become one of many: nothing is deleted before what replaces it was read back."""

from collections.abc import Collection

from synthbench.results.files import encode
from synthbench.results.folder import Folder
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
