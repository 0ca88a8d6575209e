"""Rows of ladders for the tests of several studies."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from studies.climb.page import SUITE
from synthbench.bits import BITS
from synthbench.canonical import canonical_json
from synthbench.levels import LADDER_SCORE, LevelScore, metrics_of_levels
from synthbench.suites import load_suite
from synthbench.tasks import TASKS


@pytest.fixture(scope="session")
def ladder_row(make_row: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Make a row of suite climb whose levels follow from their loads and a height."""

    def make(task: str, mech: str, seed: int, height: float, loads: Sequence[float], **changes: Any) -> dict[str, Any]:
        skills = [min(1.0, max(0.0, height - level)) for level in range(len(loads))]
        levels = [LevelScore(load, skill, 0.0, 1.0) for load, skill in zip(loads, skills, strict=True)]
        metrics = metrics_of_levels(levels) | {"validation_accuracy": height / len(loads)}
        made = {
            "suite": SUITE.name, "suite_version": SUITE.version, "task": task, "task_category": TASKS[task].category(),
            "mech": mech, "mech_family": "a family", "seed": seed, "score": height / len(loads), "floor": 0.0,
            "metric_name": LADDER_SCORE, "metrics": json.dumps(metrics),
            "task_args": json.dumps({"load": "pairs", "rungs": [{"load": load, "length": 2} for load in loads]}),
        }  # fmt: skip
        return make_row(**made | changes)

    return make


@pytest.fixture(scope="session")
def text_row(make_row: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Make a row of a language model with some bits per byte of a text; without bits its run diverged."""

    def make(mech: str, seed: int, bits: float | None, corpus: str, /, **changes: Any) -> dict[str, Any]:
        metrics = {"validation_bits": bits or 8.0, **changes.pop("metrics", {})}
        made = {
            "suite": "text", "suite_version": load_suite("text").version, "task": "text", "task_category": "real",
            "task_args": canonical_json({"corpus": corpus, "length": 128}), "seq_len": 128, "mech": mech, "seed": seed,
            "lr": 0.01, "metric_name": BITS, "score": None if bits is None else -bits, "floor": -4.7, "ceiling": 0.0,
            "status": "diverged" if bits is None else "ok", "metrics": canonical_json(metrics),
        }  # fmt: skip
        return make_row(**made | changes)

    return make
