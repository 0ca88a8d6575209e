"""What the tests of the tasks share."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from synthbench.knobs import coerce
from synthbench.tasks.base import IGNORE, TASKS, Task

Reference = Callable[[Any, list[int]], list[set[int]]]
"""A naive form of a task: the targets that each position may have, given the inputs."""


def _assert_allowed(task: Task, reference: Reference, inputs: list[int], targets: list[int]) -> None:
    allowed = reference(task, inputs)
    assert len(allowed) == len(inputs) == len(targets)
    for position, target in enumerate(targets):
        assert target in allowed[position], f"position {position} of {inputs} has the target {target}"


def _assert_targets_follow(task: Task, reference: Reference, seed: int, length: int) -> None:
    inputs, targets = task.sample(np.random.default_rng(seed), 4, length)
    assert inputs.shape == targets.shape == (4, length)
    for sequence, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
        _assert_allowed(task, reference, sequence, answers)


def _assert_example_holds(name: str, reference: Reference) -> None:
    text = TASKS[name].__doc__ or ""
    found = re.search(
        r"^(?P<setting>.*)::\n\n +inputs +(?P<inputs>.*)\n +targets +(?P<targets>.*)$", text, re.MULTILINE
    )
    assert found, f"{name} has no worked example"
    arguments: dict[str, Any] = dict(re.findall(r"``(\w+)=([\d.]+)``", found["setting"]))
    task = TASKS[name](**coerce("task", TASKS[name], arguments))
    inputs = [int(token) for token in found["inputs"].split()]
    task.check_length(len(inputs))
    assert all(0 <= token < task.vocab_size for token in inputs)
    targets = [IGNORE if target == "." else int(target) for target in found["targets"].split()]
    _assert_allowed(task, reference, inputs, targets)


@pytest.fixture(scope="session")
def assert_targets_follow() -> Callable[[Task, Reference, int, int], None]:
    """Sample a few sequences of a length with a seed and compare the targets with a reference."""
    return _assert_targets_follow


@pytest.fixture(scope="session")
def assert_example_holds() -> Callable[[str, Reference], None]:
    """Compare the worked example in a task's docstring with a reference."""
    return _assert_example_holds
