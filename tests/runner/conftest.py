from collections.abc import Callable
from typing import Any

import pytest

from synthbench.runner.config import Cell
from synthbench.runner.plan import make_cells, shortened
from synthbench.suites import load_suite


@pytest.fixture
def make_cell() -> Callable[..., Cell]:
    """A cell of the smoke suite, a few steps and sequences long."""

    def make(
        task: str = "reverse", mechanism: str = "softmax", *, steps: int = 4, limit: int = 32, **changes: Any
    ) -> Cell:
        suite = shortened(load_suite("paper"), steps=steps, limit=limit)
        if "learning_rates" in changes:
            rates = changes.pop("learning_rates")
            suite = suite.model_copy(
                update={"training": suite.training.model_copy(update={"learning_rates": tuple(rates)})}
            )
        if "curve_every" in changes:
            every = changes.pop("curve_every")
            suite = suite.model_copy(update={"evaluation": suite.evaluation.model_copy(update={"curve_every": every})})
        task_arguments = {key: str(value) for key, value in changes.items()}
        (cell,) = make_cells(suite, {task: task_arguments}, {mechanism: {}}, device_type="cpu", is_full=False)
        return cell

    return make
