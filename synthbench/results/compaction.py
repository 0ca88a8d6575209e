"""Many files of one run become one of many: nothing is deleted before what replaces it was read back."""

import pyarrow as pa

from synthbench.results.files import remove, stack
from synthbench.results.folder import Folder
from synthbench.results.reading import curves_of, newest, row_files
from synthbench.results.schema import CURVES, RUNS


def compact(folder: Folder) -> int:
    """Merge all files into one of runs and one of curves; return how many small files were merged.

    Raises:
        StoreError: If the store cannot be written or another process is compacting it.
    """
    with folder.alone():
        folder.remove_stale_partials()
        sources = row_files(folder)
        rows = newest(sources)
        curves = curves_of(folder, rows)
        old = folder.compact_paths("runs", "curves")
        # Curves first, as in write: a crash in between leaves rows that still find theirs.
        kept = {
            folder.commit_compact("curves", stack(CURVES, [curve.table for curve in curves])),
            folder.commit_compact("runs", pa.Table.from_pylist(rows, schema=RUNS)),
        }
        used = [source.file for source in sources] + [curve.file for curve in curves]
        merged = {file.path: file for file in used}
        num_merged = sum(remove(file) for file in merged.values() if file.path not in old)
        faulty = {source.file.path: source.faults[0] for source in sources if source.faults}
        for path in old:
            if path in faulty:
                folder.set_aside(path, faulty[path])
            elif path not in kept:
                path.unlink(missing_ok=True)
    return num_merged
