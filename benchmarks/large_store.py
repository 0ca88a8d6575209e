"""Peak memory and time of the commands that read a whole store, each in a process of its own.

python -m benchmarks.large_store --help
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import pyarrow as pa
import typer

from benchmarks.script import make_app, run
from synthbench.canonical import canonical_json
from synthbench.cli.options import AsJson
from synthbench.cli.output import print_facts
from synthbench.results import CURVES, Store, published, run_id
from synthbench.results.schema import row_sha256
from synthbench.results.store import curves_of, rows_of

app = make_app()

COMMANDS = (("status", "--suite", "core"), ("store", "ls"), ("store", "compact"))
"""Measured before compaction and, without the last, after it; the second also after one that was killed."""
_JOB_ROWS = 1000
_LOOSE = ("runs", "curves")
_FIRST_SEED = 1_000_000


def fill(root: Path, num_rows: int) -> None:
    """Fill a store with jobs of copies of the committed rows and curves under other seeds, all of which hold.

    Args:
        root: An empty or missing folder.
        num_rows: Rows in all.
    """
    store = Store.open(root, create=True)
    copies = _copies()
    for start in range(0, num_rows, _JOB_ROWS):
        store.write_all((row, curve.to_pylist()) for row, curve in islice(copies, min(_JOB_ROWS, num_rows - start)))


def _copies() -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Committed rows and their curves, each under a seed of its own."""
    originals = Store.open(published(), create=False)
    table = rows_of(originals)
    points = curves_of(originals, table)[0]
    rows = table.to_pylist()
    configs = [json.loads(row["config_json"]) for row in rows]
    places = pd.Series(range(points.num_rows)).groupby(points["run_id"].to_numpy()).indices
    for seed, (row, config) in enumerate(cycle(zip(rows, configs, strict=True)), _FIRST_SEED):
        name = run_id(config | {"seed": seed})
        text = canonical_json(config | {"seed": seed})
        made = row | {"seed": seed, "run_id": name, "config_hash": name, "config_json": text}
        curve = points.take(places.get(row["run_id"], []))
        names = pa.array([name] * curve.num_rows, pa.string())
        yield made | {"row_sha256": row_sha256(made)}, curve.set_column(0, CURVES.field(0), names)


def measure(root: Path) -> list[dict[str, Any]]:
    """Peak resident memory in GB and seconds of each command on a store, before and after it is compacted."""
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        loose = [shutil.copytree(root / kind, Path(scratch) / kind, copy_function=os.link) for kind in _LOOSE]
        facts = [_measured(command, root, "as it is") for command in COMMANDS]
        facts += [_measured(command, root, "compacted") for command in COMMANDS[:-1]]
        for kind, copy in zip(_LOOSE, loose, strict=True):  # all that a killed compaction had yet to delete
            shutil.copytree(copy, root / kind, copy_function=os.link, dirs_exist_ok=True)
        return [*facts, _measured(COMMANDS[1], root, "killed while it was compacted")]


def _measured(command: Sequence[str], root: Path, state: str) -> dict[str, Any]:
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 -- our own command
        [sys.executable, "-m", "synthbench", *command, "--results", str(root)], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "command": " ".join(command[:2]) if command[0] == "store" else command[0],
        "store": state,
        "exit_code": process.returncode,
        "peak_gb": usage.ru_maxrss * 1024 / 1e9,
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


@app.command()
def main(
    rows: Annotated[int, typer.Option(help="Rows of the store.", min=1)] = 1_000_000,
    store: Annotated[Path | None, typer.Option(help="Measure this store instead; it will be compacted.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure status, store ls and store compact on a store of many rows: a million take 3 GB of disk."""
    with tempfile.TemporaryDirectory(prefix="synthbench-large-") as scratch:
        if store is None:
            store = Path(scratch)
            # In a process of its own: a child's peak begins with what its parent holds.
            filling = get_context("spawn").Process(target=fill, args=(store, rows))
            filling.start()
            filling.join()
        facts = measure(store)
    print_facts(facts, list(facts[0]), as_json=as_json)


if __name__ == "__main__":
    run(app)
