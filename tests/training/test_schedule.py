from collections.abc import Callable

import pytest
import torch
from torch import nn

from synthbench.suites import load_suite
from synthbench.training.cell import Cell
from synthbench.training.optimiser import FusedAdamW, MemberAdamW, make_optimiser
from synthbench.training.schedule import Constant, GeometricCurriculum, WarmupCosine, make_schedule
from synthbench.training.train import Trainer

SETTINGS = load_suite("paper").training


def test_a_suite_names_its_schedule() -> None:
    assert isinstance(make_schedule(SETTINGS), Constant)
    curriculum = SETTINGS.model_copy(update={"schedule": "geometric-curriculum"})
    assert isinstance(make_schedule(curriculum), GeometricCurriculum)
    warm = SETTINGS.model_copy(update={"schedule": "warmup-cosine", "warmup_steps": 5})
    assert isinstance(make_schedule(warm), WarmupCosine)


@pytest.mark.parametrize("rates", [[0.1, 0.1], [0.1, 0.2]])
def test_rates_are_shares_of_the_first_ones(rates: list[float]) -> None:
    def moved(share: float) -> torch.Tensor:
        parameter = nn.Parameter(torch.ones(2, 1, dtype=torch.float64))
        optimiser = make_optimiser([parameter], rates, SETTINGS.model_copy(update={"weight_decay": 0.0}))
        optimiser.set_rates(0.7)  # shares do not multiply
        optimiser.set_rates(share)
        torch.autograd.backward(parameter.sum())
        optimiser.step()
        return 1 - parameter.detach()

    torch.testing.assert_close(moved(0.5), 0.5 * moved(1.0), rtol=1e-6, atol=0)
    expected = FusedAdamW if rates[0] == rates[1] else MemberAdamW
    assert isinstance(make_optimiser([nn.Parameter(torch.ones(2))], rates, SETTINGS), expected)


def test_the_curriculum_has_four_phases_and_anneals_in_the_last(
    make_cell: Callable[..., Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(make_cell("copy", "linear", length=4, learning_rates=[1e-2]).members([0]), torch.device("cpu"))
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


def test_the_rate_warms_up_and_falls_by_half_a_cosine(make_cell: Callable[..., Cell]) -> None:
    trainer = Trainer(make_cell("copy", "linear", length=4, learning_rates=[1e-2]).members([0]), torch.device("cpu"))
    assert isinstance(trainer.optimiser, torch.optim.AdamW)
    schedule = WarmupCosine(num_steps=14, warmup_steps=4)
    shares, rates = [], []
    for step in range(14):
        shares.append(schedule.apply(step, trainer.optimiser, trainer.model))
        rates.append(trainer.optimiser.param_groups[0]["lr"])

    assert shares[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert shares[9] == pytest.approx(0.5)
    assert shares[4:] == sorted(shares[4:], reverse=True)
    assert 0 < shares[-1] < 0.05
    assert rates == pytest.approx([1e-2 * share for share in shares])
