"""How long a store of very many rows takes: to write a row, to compact, to read it all, to report.

python -m benchmarks.store --help
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from benchmarks.script import make_app, run
from synthbench.canonical import canonical_json
from synthbench.cli.options import AsJson
from synthbench.cli.output import print_facts
from synthbench.errors import UsageError
from synthbench.reports.build import build
from synthbench.results import CURVES, RUNS, Store
from synthbench.results.schema import RUN_COLUMNS, SCHEMA_VERSION, curve_sha256, row_sha256, run_id

app = make_app()

SUITE = "made-up"
NUM_TASKS, NUM_MECHANISMS = 48, 41
"""About as many tasks and mechanisms as synthbench has; the rest of the rows are seeds."""
MEASURES = (("train", "loss"), ("validation", "accuracy"), ("validation", "loss"))
"""What has a learning curve in a run: split and metric."""
_BATCH_ROWS = 10_000
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000

_OF_TYPE: dict[str, Any] = {
    "string": "as in most rows", "name": "plain", "term": "plain", "json": "{}", "bool": True, "int32": 1, "int64": 64,
    "float64": 0.25, "timestamp": _BEGIN,
}  # fmt: skip
"""What a column holds in which rows do not differ."""


def measure(root: Path, *, num_rows: int, num_singles: int, num_points: int) -> list[dict[str, Any]]:
    """Fill an empty folder with rows that nothing trained, and time what is done with a store, a step each.

    Args:
        root: An empty folder, where the store is made.
        num_rows: Rows in all.
        num_singles: Those that are written one by one, as a run writes them; the others come in large files.
        num_points: Points of each learning curve.

    Raises:
        UsageError: If there are fewer rows than singles, or something lies in the folder.
        StoreError: If the store cannot be written.
    """
    if not 0 < num_singles <= num_rows:
        raise UsageError(f"--singles is {num_singles}; allowed: 1 to {num_rows}, the number of rows")
    if root.exists() and any(root.iterdir()):
        raise UsageError(f"{root} is not empty; name a new folder")
    store = Store.open(root, create=True)
    for runs, curves in _made(range(num_singles, num_rows), num_points):
        store.folder.commit_compact("curves", curves)
        store.folder.commit_compact("runs", runs)
    ((singles, points),) = _made(range(num_singles), num_points)
    run_points = len(MEASURES) * num_points
    written = [
        (row, points.slice(number * run_points, run_points).to_pylist())
        for number, row in enumerate(singles.to_pylist())
    ]
    facts: list[dict[str, Any]] = []
    _timed(facts, "write", num_singles, lambda: _write(store, written))
    _timed(facts, "compact", num_rows, store.compact)
    rows, curves = _timed(facts, "load", num_rows, Store.open(root, create=False).read)
    _timed(facts, "report", num_rows, lambda: build(rows, curves, SUITE))
    loaded, reported = facts[-2:]
    together = loaded["seconds"] + reported["seconds"]
    return [
        *facts,
        {"step": "load and report", "rows": num_rows, "seconds": together, "ms_a_row": together / num_rows * 1e3},
    ]


def _write(store: Store, written: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]]) -> None:
    for row, curve in written:
        store.write(row, curve)


def _timed(facts: list[dict[str, Any]], step: str, num_rows: int, act: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    made = act()
    seconds = time.perf_counter() - began
    facts.append({"step": step, "rows": num_rows, "seconds": seconds, "ms_a_row": seconds / num_rows * 1e3})
    return made


def _made(numbers: range, num_points: int) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Rows and their curves in batches; what a number makes does not depend on the others."""
    for start in range(numbers.start, numbers.stop, _BATCH_ROWS):
        batch = np.arange(start, min(start + _BATCH_ROWS, numbers.stop))
        configs = [canonical_json({"number": int(number), "about": "x" * 750}) for number in batch]
        names = [run_id(json.loads(config)) for config in configs]
        curves = _curves(batch, names, num_points)
        run_points = len(MEASURES) * num_points
        sums = [curve_sha256(curves.slice(run * run_points, run_points).to_pydict()) for run in range(len(batch))]
        yield _rows(batch, names, configs, sums), curves


def _rows(batch: np.ndarray, names: Sequence[str], configs: Sequence[str], sums: Sequence[str]) -> pa.Table:
    cells, seeds = batch % (NUM_TASKS * NUM_MECHANISMS), batch // (NUM_TASKS * NUM_MECHANISMS)
    tasks, mechanisms = cells % NUM_TASKS, cells // NUM_TASKS
    noise = np.random.default_rng([int(batch[0]), len(batch)]).random((3, len(batch)))
    score = 0.25 + 0.75 * np.clip((mechanisms + 1) / NUM_MECHANISMS * 0.5 + 0.4 * noise[0], 0, 1)
    own: dict[str, Any] = {
        "run_id": names, "schema_version": [SCHEMA_VERSION] * len(batch), "suite": [SUITE] * len(batch),
        "status": ["ok"] * len(batch), "seed": seeds, "config_json": configs,
        "score": score, "skill": (score - 0.25) / 0.75,
        "ceiling": np.ones(len(batch)), "curve_sha256": sums, "eval_loss": noise[1], "wall_s": 100 * noise[2],
        "task": [f"task_{number}" for number in tasks], "task_category": [f"category_{number % 8}" for number in tasks],
        "mech": [f"mech_{number}" for number in mechanisms], "mech_label": [f"Mech {number}" for number in mechanisms],
        "metrics": [canonical_json({"x2": one, "x4": other}) for one, other in noise[:2].T.tolist()],
        "finished_at": pa.array(batch * 1000 + _DAY_US, pa.int64()).cast(RUNS.field("finished_at").type),
        "row_sha256": [""] * len(batch),
    }  # fmt: skip
    arrays = []
    for column in RUN_COLUMNS:
        usual = column.choices[0] if column.choices else _OF_TYPE.get(column.type)
        values = own.get(column.name, [None if column.is_nullable else usual] * len(batch))
        arrays.append(pa.array(values, column.arrow_type))
    table = pa.Table.from_arrays(arrays, schema=RUNS)
    place = RUNS.get_field_index("row_sha256")
    return table.set_column(place, RUNS.field(place), pa.array(map(row_sha256, table.to_pylist())))


def _curves(batch: np.ndarray, names: Sequence[str], num_points: int) -> pa.Table:
    runs, steps, kinds = np.indices((len(batch), num_points, len(MEASURES))).reshape(3, -1)
    value = np.random.default_rng([1, int(batch[0]), len(batch)]).random(len(steps))
    splits, metrics = np.array(MEASURES, dtype=object).T
    columns = {
        "run_id": np.array(names, dtype=object)[runs],
        "step": 100 * (steps + 1), "split": splits[kinds], "metric": metrics[kinds],
        "value": value.astype(np.float32), "wall_s": value * (steps + 1), "tokens": 6400 * (steps + 1),
    }  # fmt: skip
    return pa.table([pa.array(columns[field.name], field.type) for field in CURVES], schema=CURVES)


@app.command()
def main(
    rows: Annotated[int, typer.Option(help="Rows of the store.", min=1)] = 100_000,
    singles: Annotated[int, typer.Option(help="Rows that are written one by one.", min=1)] = 1000,
    points: Annotated[int, typer.Option(help="Points of each of the three learning curves of a row.", min=1)] = 10,
    as_json: AsJson = False,
) -> None:
    """Time a store of rows that nothing trained: writing, compaction, loading everything, a whole report."""
    with tempfile.TemporaryDirectory(prefix="synthbench-store-") as folder:
        facts = measure(Path(folder), num_rows=rows, num_singles=singles, num_points=points)
    print_facts(facts, list(facts[0]), as_json=as_json)


if __name__ == "__main__":
    run(app)
