"""Tests out of the trained range, and runs that stop when they have solved it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from synthbench.training.cell import Cell, Run
from synthbench.training.train import train_group

CPU = torch.device("cpu")


def test_models_are_tested_on_longer_sequences_alone_and_beside_other_tasks(make_cell: Callable[..., Cell]) -> None:
    settings: dict[str, Any] = {"steps": 20, "stretches": (2, 4), "test_sequences": 64, "length": 8}
    cells = [make_cell("copy", vocabulary=vocabulary, **settings) for vocabulary in (9, 3)]
    together = train_group([Run(cell, seed, 1e-2) for cell in cells for seed in (0, 1)], CPU).runs

    for place, cell in enumerate(cells):
        assert {factor: length for factor, (_, length) in cell.tests.items()} == {1: 8, 2: 16, 4: 32}
        alone = train_group([Run(cell, seed, 1e-2) for seed in (0, 1)], CPU).runs
        for single, beside in zip(alone, together[2 * place :], strict=False):
            assert single.score is not None
            # Fewer sequences as they get longer, so about as many tokens.
            scored = {factor: score.num_scored for factor, score in single.stretched.items()}
            assert scored == pytest.approx(dict.fromkeys((2, 4), single.score.num_scored), rel=0.2)
            assert beside.stretched[2].num_scored == single.stretched[2].num_scored
            assert beside.stretched[2].accuracy == pytest.approx(single.stretched[2].accuracy, abs=5e-3)
            assert beside.stretched[2].loss == pytest.approx(single.stretched[2].loss, rel=1e-4, abs=1e-6)


def test_runs_stop_once_they_have_solved_it_and_leave_the_others_alone(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell("copy", steps=120, stop_at=0.95, curve_every=5, length=6, vocabulary=3)
    fast, slow = train_group([Run(cell, 0, 1e-3), Run(cell, 1, 1e-5)], CPU).runs
    (alone,) = train_group([Run(cell, 0, 1e-3)], CPU).runs

    assert fast.stopped_at is not None
    assert fast.stopped_at < 120
    assert fast.curve[-1].step == fast.stopped_at == len(fast.rates)
    assert slow.stopped_at is None
    assert len(slow.rates) == 120
    assert alone.stopped_at == fast.stopped_at
    assert alone.score is not None
    assert fast.score is not None
    assert fast.score.accuracy == pytest.approx(alone.score.accuracy, abs=0.02)
