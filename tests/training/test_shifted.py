"""Models of a suite that asks for it are tested with all coordinates moved, apart from their score and their id."""

from typing import Any

import pytest
import torch

from synthbench.errors import UsageError
from synthbench.positions import LearnedRotation
from synthbench.suites import load_suite, suite_names
from synthbench.training.cell import Cell
from synthbench.training.train import RunResult, Trainer, init_generator, train_group
from tests.training.cells import CPU, make_cell

SHIFTS = (1, 7, 100)


def cell_of(positions: str, mechanism: str = "softmax", **changes: Any) -> Cell:
    changes |= {"positions": positions, "steps": 2, "limit": 8, "batch_size": 8}
    return make_cell("grid_neighbours", mechanism, suite="positions", **changes)


def trained(positions: str, mechanism: str = "softmax", seeds: tuple[int, ...] = (1,)) -> list[RunResult]:
    return train_group(cell_of(positions, mechanism).runs(seeds), CPU).runs


def of_shifts(result: RunResult) -> dict[str, Any]:
    return {name: value for name, value in result.metrics.items() if name.startswith(("shift", "ir_spec"))}


def test_one_suite_asks_for_shifts_and_no_id_has_them() -> None:
    asking = [name for name in suite_names() if load_suite(name).evaluation.shifts is not None]

    assert asking == ["positions"]
    assert load_suite("positions").evaluation.shifts == SHIFTS
    assert cell_of("string").identity == cell_of("string", shifts=None).identity


@pytest.mark.parametrize("positions", ["none", "rope", "string", "espr"])
def test_what_sees_offsets_alone_keeps_its_loss_when_all_coordinates_move(positions: str) -> None:
    (result,) = trained(positions)
    assert result.score is not None
    found = of_shifts(result)

    for shift in SHIFTS:
        # Float32 rounds the angles of later places in another way.
        assert found[f"shift{shift}.loss"] == pytest.approx(result.score.loss, abs=1e-3)
    if positions == "string":
        assert found["ir_spec"] == pytest.approx(0, abs=1e-12)
    elif positions == "espr":
        assert found["ir_spec"] > 0.01
    else:
        assert "ir_spec" not in found


def test_a_learned_table_has_no_moved_scores() -> None:
    (result,) = trained("learned")

    assert of_shifts(result) == {f"shift{shift}.{name}": None for shift in SHIFTS for name in ("score", "loss")}
    with pytest.raises(UsageError, match=r"coordinates move by 7; allowed with positions 'learned': 0.* 56 tokens"):
        cell_of("learned").model(init_generator(1), shift=7)


@pytest.mark.parametrize("mechanism", ["softmax", "performer-exp"])
def test_runs_that_train_together_have_what_each_has_alone(mechanism: str) -> None:
    _, beside = map(of_shifts, trained("espr:commuting=false", mechanism, seeds=(1, 2)))
    (alone,) = map(of_shifts, trained("espr:commuting=false", mechanism, seeds=(2,)))

    assert beside.keys() == alone.keys()
    assert beside["ir_spec"] == pytest.approx(alone["ir_spec"], rel=1e-4)
    assert beside["shift7.loss"] == pytest.approx(alone["shift7.loss"], rel=1e-3)


def test_moved_models_have_learned_what_the_trained_ones_have() -> None:
    runs = cell_of("espr").runs([1, 2])
    trainer = Trainer(runs, CPU)
    moved = trainer.stretched(runs, 1, shift=7)
    here, there = (
        next(part for part in model.modules() if isinstance(part, LearnedRotation)) for model in (trainer.model, moved)
    )

    assert torch.equal(there.coordinates, here.coordinates + 7)
    for before, after in zip(trainer.model.parameters(), moved.parameters(), strict=True):
        assert torch.equal(before, after)
