"""Checks of a task whose answers a test computes a second time: its example, targets, bounds and lengths."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthbench.contract.tasks import best_constants
from synthbench.errors import UsageError
from synthbench.options import coerce
from synthbench.tasks import accuracy
from synthbench.tasks.base import IGNORE, TASKS, Task

SEEDS = st.integers(0, 2**32 - 1)

Tokens = Any  # an array of int64; NumPy types what is indexed or computed from one as Any
Reference = Callable[[Any, list[int]], list[set[int]]]
"""A naive form of a task: the targets that each position may have, given the inputs."""
Oracle = Callable[[Any, Tokens], Tokens]
"""Solves a task: predictions [batch, length] from the inputs, where those at t may use the inputs 0..t only."""


@dataclass(frozen=True)
class Known:
    """A task's answers in a naive form, and what to compare them on."""

    reference: Reference
    oracle: Oracle
    tasks: st.SearchStrategy[Any]
    """The task with any options."""
    others: Sequence[tuple[Task, int]] = ()
    """Other options, and lengths, at which the bounds are compared as well as at the published ones."""
    lengths: Callable[[Any], st.SearchStrategy[int]] = lambda task: st.integers(task.min_length, task.min_length + 40)


def drawn(make: Callable[..., Any], *ranges: Any, **named: Any) -> st.SearchStrategy[Any]:
    """Strategy for values of ranges: from a number to another, both whole or both not, or any of a list."""

    def any_of(values: Any) -> st.SearchStrategy[Any]:
        if isinstance(values, list):
            return st.sampled_from(values)
        return st.integers(*values) if isinstance(values[0], int) else st.floats(*values)

    return st.builds(make, *map(any_of, ranges), **{name: any_of(values) for name, values in named.items()})


def checks_of(known: dict[str, Known]) -> list[Any]:
    """Parameters of a test that calls each: what must hold of every task by the name of the task."""
    checks: list[tuple[str, Callable[[], None]]] = []
    for name, one in known.items():
        task = TASKS[name]()
        checks += [
            (f"{name}-example", partial(check_example, name, one.reference)),
            (f"{name}-targets", partial(check_targets, one)),
            (f"{name}-shortest", partial(check_shortest, task)),
        ]
        for sized in ((task, task.length), *one.others):
            checks.append((f"{name}-bounds-at-{sized[1]}", partial(check_bounds, *sized, one.oracle)))
    return [pytest.param(check, id=of) for of, check in checks]


def _assert_allowed(task: Task, reference: Reference, inputs: list[int], targets: list[int]) -> None:
    allowed = reference(task, inputs)
    assert len(allowed) == len(inputs) == len(targets)
    for position, target in enumerate(targets):
        assert target in allowed[position], f"position {position} of {inputs} has the target {target}"


def check_example(name: str, reference: Reference) -> None:
    """The worked example in a task's docstring is true."""
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


def check_targets(known: Known) -> None:
    """The targets of a few sequences are those of the naive form, whatever options, length and seed."""

    @settings(max_examples=30)  # the first call may build the table of a group
    @given(known.tasks.flatmap(lambda task: st.tuples(st.just(task), known.lengths(task))), SEEDS)
    def check(sized: tuple[Task, int], seed: int) -> None:
        task, length = sized
        inputs, targets = task.sample(np.random.default_rng(seed), 4, length)
        assert inputs.shape == targets.shape == (4, length)
        for sequence, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
            _assert_allowed(task, known.reference, sequence, answers)

    check()


def check_shortest(task: Task) -> None:
    """Its shortest length is sampled, and a shorter one refused."""
    shortest, rng = task.min_length, np.random.default_rng(0)
    assert task.sample(rng, 1, shortest).inputs.shape == (1, shortest)
    for call in (task.floor, task.ceiling, lambda length: task.sample(rng, 1, length)):
        with pytest.raises(UsageError, match=f"length of task '{task.name}' is {shortest - 1}; allowed: .*{shortest}"):
            call(shortest - 1)


def check_bounds(task: Task, length: int, oracle: Oracle) -> None:
    """Constants reach the floor and no more, the oracle the ceiling, from prefixes; and shortcuts fail."""
    floor, ceiling = task.floor(length), task.ceiling(length)
    fit, fresh = (task.sample(np.random.default_rng(seed), 8192, length) for seed in (6, 7))
    constants = best_constants(fit.targets, task.vocab_size)
    # On the sample that they were found on, the best constants score more than the floor, on another one less.
    on_fit, on_fresh = (accuracy(np.broadcast_to(constants, of.targets.shape), of.targets) for of in (fit, fresh))
    spread = 4 * np.hypot(on_fresh.standard_error, floor.standard_error) + 1 / 8192
    assert on_fresh.value <= floor.value + spread
    if floor.kind == "exact":
        assert on_fit.value >= floor.value - spread

    num_answers = (fresh.targets != IGNORE).sum() / 8192
    num_sequences = 100 if ceiling.value == 1 else int(np.clip(4000 / num_answers, 100, 2000))
    inputs, targets = fresh.inputs[:num_sequences], fresh.targets[:num_sequences]
    reached = accuracy(oracle(task, inputs), targets)
    if ceiling.value == 1:
        assert reached.value == 1
    spread = 4 * np.hypot(reached.standard_error, ceiling.standard_error) + 1e-9
    assert reached.value <= ceiling.value + spread
    if ceiling.kind == "exact":
        assert reached.value >= ceiling.value - spread
    if task.readout == "position":
        _assert_reads_no_future(task, length, oracle)

    inputs, targets = fresh.inputs[:2000], fresh.targets[:2000]
    for name, predictions in task.shortcuts(inputs).items():
        assert predictions.shape == targets.shape, name
        shortcut = accuracy(predictions, targets).value
        assert shortcut < ceiling.value - 0.03, f"{name} scores {shortcut:.3f}"


def _assert_reads_no_future(task: Task, length: int, oracle: Oracle) -> None:
    """Changing what follows a position leaves the oracle's prediction there as it was."""
    inputs, targets = task.sample(np.random.default_rng(4), 16, length)
    others, _ = task.sample(np.random.default_rng(5), 16, length)
    predictions = oracle(task, inputs)
    scored = np.flatnonzero((targets != IGNORE).any(axis=0))
    for position in {scored[0], scored[len(scored) // 2]}:
        mixed = np.concatenate([inputs[:, : position + 1], others[:, position + 1 :]], axis=1)
        is_scored = targets[:, position] != IGNORE
        assert (oracle(task, mixed)[is_scored, position] == predictions[is_scored, position]).all()
