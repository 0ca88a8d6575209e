"""Complete rows for tests, with any column changed."""

from datetime import UTC, datetime
from typing import Any

from synthbench.canonical import canonical_json
from synthbench.results.schema import RUN_COLUMNS, SCHEMA_VERSION, row_sha256, run_id, skill, table_of

Row = dict[str, Any]

DEFAULTS: Row = {
    "suite": "paper",
    "suite_version": "2026.1",
    "is_full": True,
    "status": "ok",
    "task": "copy",
    "task_category": "basic",
    "task_version": "1",
    "task_source": "graves2014ntm",
    "task_args": canonical_json({"length": 64}),
    "seq_len": 64,
    "vocab_size": 16,
    "n_train": 6400,
    "n_eval": 1000,
    "mech": "softmax",
    "mech_family": "softmax",
    "mech_source": "vaswani2017attention",
    "mech_version": "1",
    "mech_origin": "builtin",
    "mech_args": "{}",
    "mech_code_hash": "ba9876543210",
    "causal_checked": True,
    "block": "transformer",
    "positions": "learned",
    "d_model": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_params": 100_000,
    "n_params_mixer": 33_000,
    "state_size": 8192,
    "seed": 42,
    "data_seed": 1,
    "init_seed": 2,
    "ensemble_size": 1,
    "ensemble_index": 0,
    "member_strategy": "fold",
    "metric_name": "accuracy",
    "score": 0.75,
    "floor": 0.25,
    "floor_kind": "exact",
    "ceiling": 1.0,
    "ceiling_kind": "exact",
    "metrics": "{}",
    "n_eval_examples": 32_000,
    "n_correct": 24_000,
    "train_loss": 0.5,
    "eval_loss": 0.625,
    "best_eval_loss": 0.5,
    "steps": 100,
    "steps_planned": 100,
    "batch_size": 64,
    "optimizer": "adamw",
    "lr": 0.001,
    "weight_decay": 0.0,
    "tuning_trials": 1,
    "tuning_rule": "fixed",
    "config_json": "{}",
    "config_hash": "0123456789ab",
    "device_type": "cpu",
    "device_name": "a processor",
    "dtype": "float32",
    "amp": False,
    "compiled": False,
    "deterministic": True,
    "tf32": False,
    "num_threads": 1,
    "n_visible_devices": 0,
    "wall_s": 2.5,
    "queue_s": 0.0,
    "train_s": 2.0,
    "eval_s": 0.25,
    "data_s": 0.125,
    "step_ms_median": 20.0,
    "tokens_per_s": 200_000.0,
    "started_at": datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC),
    "finished_at": datetime(2026, 1, 1, 12, 0, 2, 500_000, tzinfo=UTC),
    "host_hash": "0123456789ab",
    "executor": "inline",
    "attempt": 1,
    "synthbench_version": "0.1.0",
    "python": "3.11",
    "torch": "2.10",
    "numpy": "2.0",
    "os": "Linux",
    "packages": "{}",
}

IDENTITY = ("suite", "suite_version", "task", "task_args", "mech", "mech_args", "seed", "lr", "steps_planned")


def make_row(**changes: Any) -> Row:
    """Make a complete row: task copy, mechanism softmax, seed 42, status ok, with any column changed.

    ``run_id``, ``skill``, ``mech_label`` and the checksum follow from the others unless given.
    """
    row: Row = {column.name: None for column in RUN_COLUMNS} | DEFAULTS | changes
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
