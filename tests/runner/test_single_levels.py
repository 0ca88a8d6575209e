"""Levels get harder: what is trained on one level alone reaches no more skill on a higher one."""

import pytest
import torch

from synthbench.runner.plan import make_cells
from synthbench.suites import load_suite
from synthbench.tasks import TASKS
from synthbench.training.cell import Run
from synthbench.training.train import train_group

MARGIN = 0.15
"""Tolerance of skill between two trainings of the same difficulty."""


def skill_on(task: str, number: int, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Skill on one level after a training on nothing else."""
    suite = load_suite("core")
    with monkeypatch.context() as patch:
        patch.setattr(TASKS[task], "levels", (TASKS[task].levels[number],))
        (cell,) = make_cells(suite, {task: {}}, {mechanism: {}}, device_type="cpu", is_full=False)
        (run,) = train_group([Run(cell, 1, suite.training.learning_rates[0])], torch.device("cpu")).runs
    (level,) = run.levels
    return level.skill


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["softmax", "lstm"])
@pytest.mark.parametrize("task", load_suite("core").tasks)
def test_skill_does_not_rise_with_the_level(task: str, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    num_levels = len(TASKS[task].ladder(longest=256))
    numbers = (0, num_levels // 2, num_levels - 1)
    lowest, middle, highest = (skill_on(task, number, mechanism, monkeypatch) for number in numbers)
    assert middle <= max(0.0, lowest) + MARGIN
    assert highest <= max(0.0, middle) + MARGIN
