"""The first batch of each task: a change to what is sampled shows as a difference in a file.

The file is rewritten only when asked: ``SYNTHBENCH_REWRITE_GOLDEN=1 pytest tests/tasks/test_golden.py``.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthbench.tasks.base import TASKS

GOLDEN = Path(__file__).parents[1] / "golden" / "first_batches.json"


def first_batch(name: str) -> dict[str, Any]:
    task = TASKS[name]()
    inputs, targets = task.sample(np.random.Generator(np.random.Philox(0)), 2, task.length)
    return {"version": task.version, "inputs": inputs.tolist(), "targets": targets.tolist()}


def as_json(batches: dict[str, dict[str, Any]]) -> str:
    """One line an array, so that a difference names a task and shows its tokens."""
    tasks = (
        f'  "{name}": {{\n' + ",\n".join(f'    "{key}": {json.dumps(value)}' for key, value in batch.items()) + "\n  }"
        for name, batch in batches.items()
    )
    return "{\n" + ",\n".join(tasks) + "\n}\n"


@pytest.fixture(scope="module")
def golden() -> dict[str, dict[str, Any]]:
    if os.environ.get("SYNTHBENCH_REWRITE_GOLDEN") == "1":
        GOLDEN.write_text(as_json({name: first_batch(name) for name in TASKS}), encoding="utf-8")
    batches: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return batches


@pytest.mark.parametrize("name", list(TASKS))
def test_first_batch_is_the_golden_one(golden: dict[str, dict[str, Any]], name: str) -> None:
    assert first_batch(name) == golden[name]


def test_golden_file_has_no_other_tasks(golden: dict[str, dict[str, Any]]) -> None:
    assert list(golden) == list(TASKS)
