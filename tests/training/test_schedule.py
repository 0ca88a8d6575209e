from typing import Any

import pytest
import torch
from torch import nn

from synthbench.suites import load_suite
from synthbench.training.optimiser import FusedAdamW, RunAdamW, make_optimiser
from synthbench.training.schedule import (
    CurriculumRates,
    GeometricCurriculum,
    Schedule,
    WarmupCosine,
    WarmupStableDecay,
    make_schedule,
)
from synthbench.training.train import Trainer
from tests.training.cells import make_cell

SETTINGS = load_suite("paper").training


def test_a_suite_names_its_schedule() -> None:
    named: dict[type[Schedule], dict[str, Any]] = {
        Schedule: {},
        GeometricCurriculum: {"schedule": "geometric-curriculum"},
        CurriculumRates: {"schedule": "curriculum-rates"},
        WarmupCosine: {"schedule": "warmup-cosine", "warmup_steps": 5},
        WarmupStableDecay: {"schedule": "warmup-stable-decay", "warmup_steps": 5, "decay_steps": 5},
    }
    assert [type(make_schedule(SETTINGS.model_copy(update=given))) for given in named.values()] == list(named)


@pytest.mark.parametrize("rates", [[0.1, 0.1], [0.1, 0.2]])
def test_rates_are_shares_of_the_first_ones(rates: list[float]) -> None:
    def moved(share: float) -> torch.Tensor:
        parameter = nn.Parameter(torch.ones(2, 1, dtype=torch.float64))
        optimiser = make_optimiser([parameter], rates, SETTINGS.model_copy(update={"weight_decay": 0.0}))
        optimiser.set_rates(0.7)  # shares do not multiply
        optimiser.set_rates(share)
        torch.autograd.backward(parameter.sum())
        optimiser.advance()
        optimiser.update()
        return 1 - parameter.detach()

    torch.testing.assert_close(moved(0.5), 0.5 * moved(1.0), rtol=1e-6, atol=0)
    expected = FusedAdamW if rates[0] == rates[1] else RunAdamW
    assert isinstance(make_optimiser([nn.Parameter(torch.ones(2))], rates, SETTINGS), expected)


def test_the_curriculum_has_four_phases_and_anneals_in_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(make_cell("copy", "linear", length=4, learning_rates=(1e-2,)).runs([0]), torch.device("cpu"))
    assert isinstance(trainer.optimiser, torch.optim.AdamW)
    heard: list[tuple[int, int]] = []
    step = 0
    for layer in trainer.model.layers:
        monkeypatch.setattr(layer.mixer, "enter_phase", lambda phase: heard.append((step, phase)))
    schedule = GeometricCurriculum(10)
    rates = []
    for step in range(10):
        schedule.apply(step, trainer.optimiser, trainer.model)
        rates.append(trainer.optimiser.param_groups[0]["lr"])

    assert heard == [(0, 1), (0, 1), (3, 2), (3, 2), (5, 3), (5, 3), (8, 4), (8, 4)]
    assert rates[:3] == [1e-2] * 3
    assert rates[3:8] == pytest.approx([1e-3] * 5)
    assert rates[8:] == pytest.approx([8e-4, 4e-4])


def test_the_rate_warms_up_and_falls_by_half_a_cosine() -> None:
    schedule = WarmupCosine(num_steps=14, warmup_steps=4)
    shares = [schedule.share(step) for step in range(14)]

    assert shares[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert shares[9] == pytest.approx(0.5)
    assert shares[4:] == sorted(shares[4:], reverse=True)
    assert 0 < shares[-1] < 0.05


def test_the_rate_warms_up_stays_and_falls_along_a_line() -> None:
    schedule = WarmupStableDecay(num_steps=8, warmup_steps=2, decay_steps=4)

    assert [schedule.share(step) for step in range(8)] == [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25]


@pytest.mark.parametrize(
    ("mechanism", "num_steps"),
    [("rewa-geometric", 1), ("rewa-geometric", 3), ("rewa-adaptive", 8), ("rewa-mixture", 8), ("rewa-lsh", 8)],
)
def test_the_curriculum_adds_geometries_and_its_control_has_all_from_the_first_step(
    mechanism: str, num_steps: int
) -> None:
    runs = make_cell("copy", mechanism, length=4, learning_rates=(1e-2,)).runs([0, 1])
    trainer = Trainer(runs, torch.device("cpu"))
    active = [buffer for name, buffer in trainer.model.named_buffers() if name.endswith("active")]
    assert len(active) == len(trainer.model.layers)

    def acting(schedule: CurriculumRates) -> list[set[float]]:
        """For every step, the geometries that act in a run, in each layer."""
        counts = []
        for step in range(num_steps):
            schedule.apply(step, trainer.optimiser, trainer.model)
            counts.append({int(some.sum()) / len(trainer.runs) for some in active})
        return counts

    phases = [4 * step // num_steps + 1 for step in range(num_steps)]
    assert acting(CurriculumRates(num_steps)) == [{3}] * num_steps
    assert acting(GeometricCurriculum(num_steps)) == [{min(phase, 3)} for phase in phases]
