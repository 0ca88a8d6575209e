"""A page's description of a task from its own code: its first sentences and one of its sequences."""

import json

import pytest

from synthbench.canonical import canonical_json
from synthbench.cli.example import describe
from synthbench.registry import version_of
from synthbench.reports.ladder import ladder_in
from synthbench.reports.report import Example
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.training.identity import task_options


def example_of(unit: str, arguments: str) -> Example:
    """An example of the installed version of a task."""
    description = describe(unit, version_of(TASKS[unit]), arguments)
    assert description is not None
    assert description.example is not None
    assert description.summary.endswith((".", "?"))
    return description.example


@pytest.mark.parametrize("unit", ["mqar", "copy", "bottleneck_compression", "tree_mirror"])
def test_an_example_is_a_sequence_of_the_task(unit: str) -> None:
    length = TASKS[unit]().min_length
    example = example_of(unit, json.dumps({"length": length}))

    (tokens,) = example.pieces
    assert len(tokens) == length == example.length
    assert any(token.target is not None for token in tokens)


def test_of_a_long_example_both_ends_are_drawn() -> None:
    example = example_of("copy", '{"length":200}')

    assert sum(map(len, example.pieces)) + example.num_hidden == 200


@pytest.mark.parametrize(
    "arguments",
    [
        *('{"length":1000000000}', '{"length":"x"}', '{"length":-1}', '{"length":{"a":1}}'),
        *('{"no":1}', "[]", "null", '{"rung":[]}'),
    ],
)
def test_nothing_is_drawn_for_arguments_that_the_task_does_not_take(arguments: str) -> None:
    assert describe("copy", version_of(TASKS["copy"]), arguments) is None


def test_nothing_is_drawn_of_an_unknown_task_or_of_another_version() -> None:
    assert describe("no-such-task", "0", "{}") is None
    assert describe("copy", "0", '{"length":8}') is None


def test_of_a_ladder_the_first_level_is_drawn() -> None:
    suite = load_suite("core")
    arguments = task_options(suite, TASKS["mqar"], 0, {})
    level = TASKS["mqar"].ladder(suite.ladder.longest)[0]  # type: ignore[union-attr]

    assert example_of("mqar", canonical_json(arguments)).length == level.length
    facts = ladder_in(arguments)
    assert facts is not None
    assert facts.unit == TASKS["mqar"].load
