"""Complete rows for tests, with any column changed."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from synthbench.canonical import canonical_json
from synthbench.results.schema import RUN_COLUMNS, SCHEMA_VERSION, Column, row_sha256, run_id, skill, table_of

Row = dict[str, Any]

OF_TYPE: Row = {"name": "copy", "term": "none", "json": "{}", "numbers": "{}", "bool": False, "float64": 0.5}


def by_type(column: Column) -> Any:
    """Fill a column by its type: null if it may be, else its first choice, or its own name if it is a text."""
    if column.is_nullable:
        return None
    return next(iter(column.choices), OF_TYPE.get(column.type, 1 if "int" in column.type else column.name))


DEFAULTS: Row = {column.name: by_type(column) for column in RUN_COLUMNS} | {
    "suite": "paper",
    "suite_version": "2026.1",
    "is_full": True,
    "task_category": "basic",
    "task_version": "1",
    "task_args": canonical_json({"length": 64}),
    "seq_len": 64,
    "n_eval": 1000,
    "mech": "softmax",
    "mech_family": "softmax",
    "mech_source": "vaswani2017attention",
    "mech_version": "1",
    "mech_origin": "builtin",
    "causal_checked": True,
    "block": "transformer",
    "positions": "learned",
    "d_model": 64,
    "n_params": 40_000,
    "n_params_mixer": 33_280,
    "state_size": 1088,
    "seed": 42,
    "ensemble_index": 0,
    "metric_name": "accuracy",
    "score": 0.75,
    "floor": 0.25,
    "ceiling": 1.0,
    "n_eval_examples": 32_000,
    "n_correct": 24_000,
    "eval_loss": 0.625,
    "steps": 100,
    "steps_planned": 100,
    "lr": 0.001,
    "device_type": "cpu",
    "device_name": "a processor",
    "dtype": "float32",
    "started_at": datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC),
    "finished_at": datetime(2026, 1, 1, 12, 0, 2, 500_000, tzinfo=UTC),
    "synthbench_version": "0.1.0",
}

IDENTITY = ("suite", "suite_version", "task", "task_args", "mech", "mech_args", "seed", "lr", "steps_planned")


def make_row(**changes: Any) -> Row:
    """Make a complete row: task copy, mechanism softmax, seed 42, status ok, with any column changed.

    ``run_id``, ``skill``, ``mech_label`` and the checksum follow from the others unless given.
    """
    row = DEFAULTS | changes
    derived = {
        "run_id": run_id({name: row[name] for name in IDENTITY}),
        "schema_version": SCHEMA_VERSION,
        "mech_label": row["mech"].title(),
        "skill": skill(row["score"], row["floor"], row["ceiling"]),
        "row_sha256": "",
    }
    row |= {name: value for name, value in derived.items() if name not in changes}
    normal: Row = table_of(RUN_COLUMNS, [row]).to_pylist()[0]
    return normal | {"row_sha256": changes.get("row_sha256", row_sha256(normal))}


def make_honest(seed: int = 42, **changes: Any) -> Row:
    """Make a row that agrees with itself; its hashes follow from its configuration unless changed."""
    config = {"seed": seed, "task": "copy"}
    hashes = {"run_id": run_id(config), "config_json": canonical_json(config), "config_hash": run_id(config)}
    return make_row(**({"seed": seed} | hashes | changes))


def later(row: Row, seconds: int = 1, **changes: Any) -> Row:
    """Make a row of the same run that finished later and so replaces another."""
    return row | {"finished_at": row["finished_at"] + timedelta(seconds=seconds)} | changes


REFUSED = (Path(__file__).parents[1] / "golden" / "rows.txt").read_text(encoding="utf-8")
"""Changes of a row or a manifest, by who refuses it, each above a part of the reason."""


def refused(by: str) -> list[tuple[Row, str]]:
    """List changes, each with a part of the reason why it is refused."""
    return [(json.loads(change), reason) for change, reason in re.findall(rf"(?m)^{by} (.*)\n(.*)$", REFUSED)]
