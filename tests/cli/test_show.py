import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from synthbench.blocks import BLOCKS
from synthbench.canonical import canonical_json
from synthbench.cli.example import describe
from synthbench.cli.show import draw, print_page
from synthbench.mechanisms import MECHANISMS
from synthbench.options import coerce, options_of
from synthbench.positions import POSITIONS
from synthbench.registry import Registry, version_of
from synthbench.reports.ladder import ladder_in
from synthbench.reports.report import Example
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.training.identity import task_options


@pytest.mark.parametrize("name", ["copy", "dyck", "joint_recall", "text"])
def test_a_drawn_example_lines_up(name: str) -> None:
    task = TASKS[name]()
    inputs, targets = draw(task.sample(np.random.default_rng(0), 1, task.length)).plain.splitlines()

    assert len(inputs.split()) == len(targets.split()) == task.length + 1
    assert len(inputs) == len(targets)


def page_of(name: str) -> str:
    page = io.StringIO()
    print_page(name, seed=3, console=Console(file=page, width=200))
    return page.getvalue()


def test_the_page_of_a_task_has_bounds_an_example_and_the_rules_behind_its_baselines() -> None:
    reverse, mqar = page_of("reverse"), page_of("mqar")

    assert "floor 0.031250 (exact)   ceiling 0.515625 (exact)" in reverse
    assert "example, seed 3" in reverse
    assert re.search(r"shortcut baseline, level 1(-\d+)?: 0\.75", mqar)
    assert "not a shortcut, after *: A key stands once" in mqar


@pytest.mark.parametrize("registry", [TASKS, MECHANISMS, POSITIONS, BLOCKS], ids=lambda registry: registry.kind)
def test_what_is_printed_as_a_default_is_accepted_as_an_option(registry: Registry[object]) -> None:
    for name in registry:
        defaults = {option: declared.default for option, declared in options_of(registry[name]).items()}
        printed = {option: str(default) for option, default in defaults.items()}

        assert coerce(registry.kind, registry[name], printed) == defaults


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
