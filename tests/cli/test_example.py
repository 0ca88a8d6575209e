"""A page's description of a task from its own code: its first sentences and one of its sequences."""

import json

import pytest

from synthbench.canonical import canonical_json
from synthbench.cli.example import describe
from synthbench.registry import version_of
from synthbench.reports.ladder import ladder_in
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.training.identity import task_options


@pytest.mark.parametrize("unit", ["mqar", "copy", "bottleneck_compression", "tree_mirror"])
def test_an_example_is_a_sequence_of_the_task(unit: str) -> None:
    length = TASKS[unit]().min_length
    description = describe(unit, version_of(TASKS[unit]), json.dumps({"length": length}))

    assert description is not None
    assert description.example is not None
    (tokens,) = description.example.pieces
    assert len(tokens) == length == description.example.length
    assert any(token.target is not None for token in tokens)
    assert description.summary.endswith((".", "?"))


def test_of_a_long_example_both_ends_are_drawn() -> None:
    description = describe("copy", version_of(TASKS["copy"]), '{"length":200}')

    assert description is not None
    assert description.example is not None
    assert sum(map(len, description.example.pieces)) + description.example.num_hidden == 200


@pytest.mark.parametrize(
    "arguments",
    [
        '{"length":1000000000}',
        '{"length":"x"}',
        '{"length":-1}',
        '{"no":1}',
        "[]",
        "null",
        '{"length":{"a":1}}',
        '{"rung":[]}',
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

    description = describe("mqar", version_of(TASKS["mqar"]), canonical_json(arguments))
    assert description is not None
    assert description.example is not None
    assert description.example.length == level.length
    facts = ladder_in(arguments)
    assert facts is not None
    assert facts.unit == TASKS["mqar"].load
