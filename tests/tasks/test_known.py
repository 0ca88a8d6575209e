"""Every task has answers that a test computes a second time, and they are its answers."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from synthbench.contract.tasks import best_constants
from synthbench.errors import UsageError
from synthbench.options import Option, coerce, options_of, parse_term
from synthbench.tasks import TASKS, accuracy, sized
from synthbench.tasks.base import IGNORE, Task
from tests.tasks._known import SEEDS, Known, Oracle, Reference, oracle_of

MODULES = "algorithms", "copying", "hops", "nesting", "published", "recall", "state_tracking"
KNOWN: dict[str, Known] = {}
for module in MODULES:
    KNOWN |= import_module(f"tests.tasks.test_{module}").KNOWN
SETTINGS = (Path(__file__).parent / "settings.txt").read_text(encoding="utf-8").split()
"""Other lengths and options of tasks, at which the bounds are compared as well."""


def small_values(option: Option) -> st.SearchStrategy[Any]:
    """The least values of an option, among which all kinds of sequences are short; or all of a few."""
    if option.choices:
        return st.sampled_from(option.choices)
    if option.type is bool:
        return st.booleans()
    low, high = option.low or 0, option.high or 0
    return st.integers(int(low), int(min(high, low + 9))) if option.type is int else st.floats(low, min(high, 20))


def assert_allowed(task: Task, reference: Reference, inputs: list[int], targets: list[int]) -> list[set[int]]:
    allowed = reference(task, inputs)
    assert len(allowed) == len(inputs) == len(targets)
    for position, target in enumerate(targets):
        assert target in allowed[position], f"position {position} of {inputs} has the target {target}"
    return allowed


def assert_reads_no_future(task: Task, length: int, oracle: Oracle) -> None:
    """Changing what follows a position leaves the oracle's prediction there as it was."""
    inputs, targets = task.sample(np.random.default_rng(4), 16, length)
    others, _ = task.sample(np.random.default_rng(5), 16, length)
    predictions = oracle(task, inputs)
    scored = np.flatnonzero((targets != IGNORE).any(axis=0))
    for position in {scored[0], scored[len(scored) // 2]}:
        mixed = np.concatenate([inputs[:, : position + 1], others[:, position + 1 :]], axis=1)
        is_scored = targets[:, position] != IGNORE
        assert (oracle(task, mixed)[is_scored, position] == predictions[is_scored, position]).all()


@pytest.mark.parametrize("name", KNOWN)
def test_the_worked_example_of_a_task_is_true(name: str) -> None:
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
    assert_allowed(task, KNOWN[name].reference, inputs, targets)


@pytest.mark.parametrize("name", KNOWN)
@settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data(), st.integers(0, 60), SEEDS)
def test_targets_are_those_of_the_naive_form_whatever_options_length_and_seed(
    name: str, data: st.DataObject, more: int, seed: int
) -> None:
    options = {option.name: data.draw(small_values(option)) for option in options_of(TASKS[name]).values()}
    try:
        task = TASKS[name](**options)
        length = task.min_length + more
        inputs, targets = task.sample(np.random.default_rng(seed), 4, length)
    except UsageError:  # options that contradict each other, or a length that no sequence has
        reject()
    assert inputs.shape == targets.shape == (4, length)
    assert inputs.min() >= 0
    assert max(inputs.max(), targets.max()) < task.vocab_size
    reference = KNOWN[name].reference
    for sequence, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
        allowed = assert_allowed(task, reference, sequence, answers)
        if KNOWN[name].is_padded:  # no answer is cut off
            assert reference(task, [*sequence, task.vocab_size - 1]) == [*allowed, {IGNORE}]


@pytest.mark.parametrize("setting", [*KNOWN, *SETTINGS])
def test_constants_reach_the_floor_the_oracle_the_ceiling_from_prefixes_and_shortcuts_fail(setting: str) -> None:
    name, arguments = parse_term(setting)
    length, options = sized(name, arguments)
    task, known = TASKS[name](**options), KNOWN[name]
    oracle = known.oracle or oracle_of(known.reference)
    floor, ceiling = task.floor(length), task.ceiling(length)
    fit, fresh = (task.sample(np.random.default_rng(seed), 8192, length) for seed in (6, 7))
    constants = best_constants(fit.targets)
    # On the sample that they were found on, the best constants score more than the floor, on another one less.
    on_fit, on_fresh = (accuracy(np.broadcast_to(constants, of.targets.shape), of.targets) for of in (fit, fresh))
    spread = 4 * np.hypot(on_fresh.standard_error, floor.standard_error) + 1 / 8192
    assert on_fresh.value <= floor.value + spread
    if floor.kind == "exact":
        assert on_fit.value >= floor.value - spread

    num_answers = (fresh.targets != IGNORE).sum() / 8192
    num_sequences = 40 if ceiling.value == 1 else int(np.clip(4000 / num_answers, 100, 2000))
    inputs, targets = fresh.inputs[:num_sequences], fresh.targets[:num_sequences]
    reached = accuracy(oracle(task, inputs), targets)
    if ceiling.value == 1:
        assert reached.value == 1
    spread = 4 * np.hypot(reached.standard_error, ceiling.standard_error) + 1e-9
    assert reached.value <= ceiling.value + spread
    if ceiling.kind == "exact":
        assert reached.value >= ceiling.value - spread
    if known.oracle and task.readout == "position":
        assert_reads_no_future(task, length, known.oracle)

    inputs, targets = fresh.inputs[:2000], fresh.targets[:2000]
    for name, predictions in task.shortcuts(inputs).items():
        assert predictions.shape == targets.shape, name
        shortcut = accuracy(predictions, targets).value
        assert shortcut < ceiling.value - 0.03, f"{name} scores {shortcut:.3f}"


@pytest.mark.parametrize("name", TASKS)
def test_a_length_that_no_sequence_has_is_refused_whatever_is_asked_for(name: str) -> None:
    task = TASKS[name]()
    for call in (task.floor, task.ceiling, lambda length: task.sample(np.random.default_rng(0), 1, length)):
        with pytest.raises(UsageError, match=f"length of task '{name}' is 0; allowed: "):
            call(0)


def test_every_task_is_known_but_those_of_files() -> None:
    assert sorted(KNOWN) == sorted(name for name in TASKS if TASKS[name].category() != "real")
