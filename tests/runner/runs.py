"""A few short runs, and which of their columns may differ."""

import sys
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


def plugin_text(name: str) -> str:
    """Source of a plugin: one mechanism, in which every position keeps to itself."""
    words = name.split("-")
    return f"""
import torch
from synthbench.layers import Linear
from synthbench.mechanisms import Mechanism, mechanism

@mechanism
class {"".join(map(str.capitalize, words))}(Mechanism):
    name = "{name}"
    label = "{" ".join(words).capitalize()}"
    family = "control"
    source = "unpublished"

    def initialise(self, generator):
        self.out = Linear(self.model_dim, self.model_dim, bias=self.bias, generator=generator)

    def forward(self, x):
        return self.out(x)

    def state_elements(self, length):
        return 0
"""


def command(request: Request, *more: str) -> list[str]:
    """Command line of a request, with further options."""
    words = [
        sys.executable, "-m", "synthbench", "run", "--suite", request.suite, "--task", ",".join(request.tasks),
        "--mech", ",".join(request.mechanisms), "--steps", str(request.steps), "--limit", str(request.limit),
        "--device", request.device, "--results", str(request.results), "--executor", request.executor, "--batched", "1",
    ]  # fmt: skip
    return [*words, *(("--address", request.address) if request.address else ()), *more]
