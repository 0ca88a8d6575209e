"""Lengths that no sequence has are refused, whatever is asked for."""

import numpy as np
import pytest

from synthbench.errors import UsageError
from synthbench.tasks.base import TASKS


@pytest.mark.parametrize("name", TASKS)
def test_floors_and_ceilings_are_refused_where_samples_are(name: str) -> None:
    task = TASKS[name]()
    for call in (task.floor, task.ceiling, lambda length: task.sample(np.random.default_rng(0), 1, length)):
        with pytest.raises(UsageError, match=f"length of task '{name}' is 0; allowed: "):
            call(0)
