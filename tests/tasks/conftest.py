"""What the tests of the tasks share."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from synthbench.contract.tasks import best_constants
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


Oracle = Callable[[Any, Any], Any]
"""Solves a task: predictions [batch, length] from the inputs, where those at t may use the inputs 0..t only."""


def _accuracy(predictions: Any, targets: Any) -> tuple[float, float]:
    """Pooled accuracy and its standard error: sequences are independent, their positions are not."""
    is_scored = targets != IGNORE
    is_right = (predictions == targets) & is_scored
    accuracy = is_right.sum() / is_scored.sum()
    residuals = is_right.sum(axis=1) - accuracy * is_scored.sum(axis=1)
    return float(accuracy), float(np.sqrt((residuals**2).sum()) / is_scored.sum())


def _assert_solved(task: Task, length: int, oracle: Oracle, num_sequences: int = 2000) -> None:
    inputs, targets = task.sample(np.random.default_rng(3), num_sequences, length)
    accuracy, standard_error = _accuracy(oracle(task, inputs), targets)
    ceiling = task.ceiling(length)
    if ceiling.value == 1:
        assert accuracy == 1
    spread = 4 * np.hypot(standard_error, ceiling.standard_error) + 1e-9
    assert accuracy <= ceiling.value + spread
    if ceiling.kind == "exact":
        assert accuracy >= ceiling.value - spread


def _assert_reads_no_future(task: Task, length: int, oracle: Oracle) -> None:
    """Changing what follows a position leaves the oracle's prediction there as it was."""
    inputs, targets = task.sample(np.random.default_rng(4), 64, length)
    others, _ = task.sample(np.random.default_rng(5), 64, length)
    predictions = oracle(task, inputs)
    for position in {0, length // 3, length // 2, length - 1}:
        mixed = np.concatenate([inputs[:, : position + 1], others[:, position + 1 :]], axis=1)
        is_scored = targets[:, position] != IGNORE
        assert (oracle(task, mixed)[is_scored, position] == predictions[is_scored, position]).all()


def _assert_floor(task: Task, length: int, num_sequences: int = 8192) -> None:
    """The best constant a position, found on one sample, scores the floor on another: neither more nor much less."""
    fit, fresh = (task.sample(np.random.default_rng(seed), num_sequences, length).targets for seed in (6, 7))
    accuracy, standard_error = _accuracy(best_constants(fit, task.vocab_size), fresh)
    floor = task.floor(length)
    # Constants found on a sample fall short of the best ones; by how much is a matter of their number.
    shortfall = np.sqrt(task.vocab_size / num_sequences)
    spread = 4 * np.hypot(standard_error, floor.standard_error) + 1 / num_sequences
    assert accuracy <= floor.value + spread
    if floor.kind == "exact":
        assert accuracy >= floor.value - spread - shortfall


def _assert_shortcuts_fail(task: Task, length: int) -> None:
    """Every rule that the task names as a shortcut stays clearly below the ceiling."""
    inputs, targets = task.sample(np.random.default_rng(8), 4000, length)
    for name, predictions in task.shortcuts(inputs).items():
        assert predictions.shape == targets.shape, name
        accuracy, _ = _accuracy(predictions, targets)
        assert accuracy < task.ceiling(length).value - 0.03, f"{name} scores {accuracy:.3f}"


@pytest.fixture(scope="session")
def assert_task_holds() -> Callable[[Task, int, Oracle], None]:
    """Compare floor, ceiling and shortcuts of a task at a length with samples and with an oracle."""

    def assert_holds(task: Task, length: int, oracle: Oracle) -> None:
        assert task.floor(length).value < task.ceiling(length).value
        _assert_floor(task, length)
        _assert_solved(task, length, oracle)
        if task.readout == "position":
            _assert_reads_no_future(task, length, oracle)
        _assert_shortcuts_fail(task, length)

    return assert_holds


@pytest.fixture(scope="session")
def assert_targets_follow() -> Callable[[Task, Reference, int, int], None]:
    """Sample a few sequences of a length with a seed and compare the targets with a reference."""
    return _assert_targets_follow


@pytest.fixture(scope="session")
def assert_example_holds() -> Callable[[str, Reference], None]:
    """Compare the worked example in a task's docstring with a reference."""
    return _assert_example_holds
