import io
import re

import numpy as np
import pytest
from rich.console import Console

from synthbench.blocks import BLOCKS
from synthbench.cli.show import draw, print_page
from synthbench.mechanisms import MECHANISMS
from synthbench.options import coerce, options_of
from synthbench.positions import POSITIONS
from synthbench.registry import Registry
from synthbench.tasks import TASKS


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
