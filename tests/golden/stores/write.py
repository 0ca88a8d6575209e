"""Writes a small store with whatever synthbench is imported; this is how the stores beside this file were made.

For a commit of the past, with its own code::

    git archive COMMIT synthbench | tar -x -C OLD
    PYTHONPATH=OLD python tests/golden/stores/write.py tests/golden/stores/SCHEMA-COMMIT

For one of the future, a schema 99 with a column that nobody knows::

    python tests/golden/stores/write.py --future tests/golden/stores/99
"""

import hashlib
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from synthbench.results import Store, schema

CURVE = [
    {
        "step": step,
        "split": "validation",
        "metric": "loss",
        "value": 1 / step,
        "wall_s": 0.5 * step,
        "tokens": 64 * step,
    }
    for step in (1, 2, 3)
]
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
OF_TYPE: dict[str, Any] = {
    "name": "copy", "term": "none", "json": "{}", "bool": False, "int32": 1, "int64": 1, "float64": 0.5,
    "timestamp": BEGIN,
}  # fmt: skip


def row(seed: int, **changes: Any) -> dict[str, Any]:
    """A row with something in every column that may not be null, and in every other one that ``changes`` names."""
    made: dict[str, Any] = {}
    for column in schema.RUN_COLUMNS:
        value = column.choices[0] if column.choices else OF_TYPE.get(column.type, column.name)
        made[column.name] = None if column.is_nullable else value
    config = json.dumps({"seed": seed}, separators=(",", ":"))
    own = {
        "run_id": schema.run_id({"seed": seed}), "config_json": config, "seed": seed,
        "config_hash": hashlib.sha256(config.encode()).hexdigest()[:16],
        "suite": "smoke", "suite_version": "2026.1", "causal_checked": True, "ensemble_index": 0, "steps_planned": 3,
        "floor": 0.25, "ceiling": 1.0, "finished_at": BEGIN + timedelta(seconds=seed),
    }  # fmt: skip
    return made | own | changes


def well(seed: int) -> dict[str, Any]:
    """A row of a run that ended well."""
    return row(
        seed, status="ok", score=0.75, skill=2 / 3, n_correct=3, n_eval_examples=4, eval_loss=0.5, steps=3, lr=0.001
    )


def write(root: Path) -> None:
    """Three rows: one that ended well and a failure in a file of many rows, another that ended well in its own."""
    store = Store.open(root, create=True)
    store.write_all([(well(1), CURVE)])
    store.write_all([(row(2, status="error", error_type="ValueError", error_message="é | <b> =1+1", lr=0.001), [])])
    store.compact()
    store.write_all([(well(3), CURVE)])
    if hasattr(store, "verify"):
        first = store.table().to_pylist()[0]
        said = {"verdict": "bitwise", "verified_by": "a colleague", "verified_at": BEGIN, "score": 0.75}
        about = {name: first[name] for name in ("run_id", "row_sha256", "synthbench_version", "device_name")}
        store.verify([about | said])


def write_the_future(root: Path) -> None:
    """The same as a synthbench to come would write it: schema 99, and a column more."""
    from synthbench.results import store  # noqa: PLC0415 - older commits have them elsewhere

    invented = schema.Column("invented_later", "string", "", "nobody knows; null if nobody asks", is_nullable=True)
    columns = (*schema.RUN_COLUMNS, invented)
    schema.RUN_COLUMNS = columns  # type: ignore[assignment]
    for module in (schema, store):
        module.SCHEMA_VERSION = 99  # type: ignore[attr-defined]
    made = Store.open(root, create=True)
    store.RUN_COLUMNS = columns  # type: ignore[attr-defined, assignment]
    made.write_all([(well(1) | {"invented_later": "yes"}, CURVE)])


if __name__ == "__main__":
    *options, folder = sys.argv[1:]
    (write_the_future if "--future" in options else write)(Path(folder))
