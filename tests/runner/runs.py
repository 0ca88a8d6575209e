"""A few short runs, and which of their columns may differ."""

from pathlib import Path
from typing import Any

from synthbench.runner.request import Request

MAY_DIFFER = (
    *("executor", "attempt", "started_at", "finished_at", "peak_mem_bytes", "row_sha256", "curve_sha256"),
    *("wall_s", "queue_s", "train_s", "eval_s", "data_s", "step_ms_median", "tokens_per_s"),
    *("git_sha", "git_dirty"),  # somebody may commit meanwhile
    "n_visible_devices",  # of several GPUs a worker sees its own
)
"""Columns that say who made a row, when, and how long it took."""


def tiny(results: Path, **changes: Any) -> Request:
    """Two tasks that share a program and differ in vocabulary and scored positions: four rows in a second."""
    base: dict[str, Any] = {
        "suite": "smoke", "tasks": ("copy:length=8,majority:length=8",), "mechanisms": ("linear",), "steps": 5,
        "limit": 32, "device": "cpu", "results": results,
    }  # fmt: skip
    return Request(**(base | changes))
