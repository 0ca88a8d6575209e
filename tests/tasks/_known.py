"""Checks of a task whose answers a test computes a second time: its example, targets and bounds."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from synthbench.contract.tasks import best_constants
from synthbench.errors import UsageError
from synthbench.options import Option, coerce, options_of
from synthbench.tasks import accuracy
from synthbench.tasks.base import IGNORE, TASKS, Task

SEEDS = st.integers(0, 2**32 - 1)

Tokens = Any  # an array of int64; NumPy types what is indexed or computed from one as Any
Reference = Callable[[Any, list[int]], list[set[int]]]
"""A naive form of a task: the targets that each position may have, given the inputs."""
Oracle = Callable[[Any, Tokens], Tokens]
"""Solves a task: predictions [batch, length] from the inputs, where those at t may use the inputs 0..t only."""


PADDED = {
    "ancestors", "binary_addition", "bucket_sort", "duplicate_string", "even_pairs", "listops",
    "missing_duplicate", "modular_arithmetic", "modular_brackets", "odds_first", "palindrome", "parity_final",
    "reverse_string", "solve_equation", "stack_manipulation", "string_copy", "tree_compose", "tree_copy", "tree_mirror",
}  # fmt: skip
"""Tasks whose answers are followed by padding, the last id."""


class Known(NamedTuple):
    """A task's answers in a naive form, which takes every option into account."""

    reference: Reference
    oracle: Oracle | None = None
    """By default the reference, which then must know the answer at the end of each prefix."""


def small_values(option: Option) -> st.SearchStrategy[Any]:
    """The least values of an option, among which all kinds of sequences are short; or all of a few."""
    if option.choices:
        return st.sampled_from(option.choices)
    if option.type is bool:
        return st.booleans()
    low, high = option.low or 0, option.high or 0
    return st.integers(int(low), int(min(high, low + 9))) if option.type is int else st.floats(low, min(high, 20))


def targets_from(inputs: list[int], begin: int, answers: list[int]) -> list[set[int]]:
    """The targets of a sequence that asks for answers from a position on, one after the other, up to its end."""
    targets = [{IGNORE}] * begin + [{answer} for answer in answers] + [{IGNORE}] * len(inputs)
    return targets[: len(inputs)]


def transduced(task: Any, inputs: list[int], size: int, answer: list[int]) -> list[set[int]]:
    """The targets of a string of a size, of which a separator, blanks for the answer, and padding must follow."""
    *_, separator, blank, padding = range(task.vocab_size)
    following = [separator] + [blank] * len(answer) + [padding] * len(inputs)
    assert size >= task.shortest
    assert max(inputs[:size]) < separator
    assert inputs[size:] == following[: len(inputs) - size]
    return targets_from(inputs, size + 1, answer)


def last_only(inputs: list[int], *answers: int) -> list[set[int]]:
    """The targets of a sequence that asks at its end, where any of the answers is right."""
    return [{IGNORE}] * (len(inputs) - 1) + [set(answers)]


def value_of(expression: list[int], modulus: int, signs: str) -> int:
    """Compute an expression of digits below the modulus, and of signs with the ids after them."""
    text = "".join(str(token) if token < modulus else signs[token - modulus] for token in expression)
    value: int = eval(text)  # noqa: S307  digits and signs only
    return value % modulus


def oracle_of(reference: Reference) -> Oracle:
    """An oracle that asks the reference for the last target of each prefix; a prefix may be no sequence of the task.

    Where the whole sequence has no target, no prefix is asked, since no prediction is compared.
    """
    no_sequence = suppress(AssertionError, IndexError, KeyError, TypeError, ValueError)

    def oracle(task: Any, inputs: Tokens) -> Tokens:
        predictions = np.zeros_like(inputs)
        for row, sequence in enumerate(inputs.tolist()):
            asked = list(range(len(sequence)))
            with no_sequence:
                whole = reference(task, sequence)
                asked = [position for position in asked if whole[position] != {IGNORE}]
            for position in asked:
                with no_sequence:
                    predictions[row, position] = min(reference(task, sequence[: position + 1])[position])
        return predictions

    return oracle


def _assert_allowed(task: Task, reference: Reference, inputs: list[int], targets: list[int]) -> list[set[int]]:
    allowed = reference(task, inputs)
    assert len(allowed) == len(inputs) == len(targets)
    for position, target in enumerate(targets):
        assert target in allowed[position], f"position {position} of {inputs} has the target {target}"
    return allowed


def check_example(name: str, reference: Reference) -> None:
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


def check_targets(unit: type[Task], reference: Reference) -> None:
    values = {name: small_values(option) for name, option in options_of(unit).items()}

    @settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much])
    @given(st.fixed_dictionaries(values), st.integers(0, 60), SEEDS)
    def check(options: dict[str, Any], more: int, seed: int) -> None:
        try:
            task = unit(**options)
            length = task.min_length + more
            inputs, targets = task.sample(np.random.default_rng(seed), 4, length)
        except UsageError:  # options that contradict each other, or a length that no sequence has
            reject()
        assert inputs.shape == targets.shape == (4, length)
        assert inputs.min() >= 0
        assert max(inputs.max(), targets.max()) < task.vocab_size
        for sequence, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
            allowed = _assert_allowed(task, reference, sequence, answers)
            if task.name in PADDED:  # no answer is cut off
                assert reference(task, [*sequence, task.vocab_size - 1]) == [*allowed, {IGNORE}]

    check()


def check_bounds(task: Task, length: int, known: Known) -> None:
    oracle = known.oracle or oracle_of(known.reference)
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
        _assert_reads_no_future(task, length, known.oracle)

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
