"""Steps replayed from a CUDA graph: what can be said of them on a CPU, and the rest on a GPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from synthbench.training.capture import WARM_UP_STEPS, CapturedStep
from synthbench.training.cell import Run
from synthbench.training.optimiser import RunAdamW
from synthbench.training.train import Trainer
from tests.training.cells import make_cell

NUM_STEPS = 8


@pytest.fixture
def device(need: Callable[[str, bool, str], None]) -> torch.device:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")
    return torch.device("cuda")


def runs_of(mechanism: str, rates: list[float], task: str = "reverse", **changes: Any) -> list[Run]:
    cell = make_cell(task, mechanism, steps=NUM_STEPS, length=16, **{"device_type": "cuda", **changes})
    return [Run(cell, seed, rate) for seed, rate in enumerate(rates)]


def losses_of(trainer: Trainer) -> Tensor:
    losses: list[Tensor] = []
    for batch in trainer.batches("train", NUM_STEPS, 16):
        trainer.schedule.apply(len(losses), trainer.optimiser, trainer.model)
        losses.append(trainer.step(batch.inputs[0], batch.targets[0], batch.columns))
    return torch.stack(losses)


def parameters_of(trainer: Trainer) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def test_on_a_cpu_nothing_is_captured() -> None:
    assert Trainer(runs_of("linear", [1e-3], device_type="cpu"), torch.device("cpu")).captured is None


@pytest.mark.gpu
@pytest.mark.parametrize("mechanism", ["softmax", "linear", "slay", "performer", "cosformer", "gla", "rewa-fourier"])
@pytest.mark.parametrize("rates", [[1e-3, 1e-3], [1e-3, 3e-3, 1e-2]], ids=["one rate", "rates"])
def test_a_replayed_step_is_the_step(device: torch.device, mechanism: str, rates: list[float]) -> None:
    runs = runs_of(mechanism, rates)
    replayed, plain = (Trainer(runs, device, is_captured=is_captured) for is_captured in (True, False))
    before = parameters_of(plain)

    losses = losses_of(replayed), losses_of(plain)

    assert replayed.captured is not None
    assert replayed.captured.failure is None
    assert replayed.captured.is_replaying
    assert plain.captured is None
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    # Of all together: where a gradient is rounding error, as that of the keys' bias in softmax attention, AdamW makes a
    # step of it.
    moved, expected = (parameters_of(trainer) - before for trainer in (replayed, plain))
    assert float((moved - expected).norm()) <= 1e-2 * float(expected.norm())


@pytest.mark.gpu
def test_tasks_that_share_a_graph_train_as_they_do_apart(device: torch.device) -> None:
    runs = [runs_of("slay", [1e-3, 1e-2], task) for task in ("parity", "reverse", "first_token")]
    together = Trainer([run for of_cell in runs for run in of_cell], device)

    losses = losses_of(together)

    assert together.captured is not None
    assert together.captured.is_replaying
    apart = torch.cat([losses_of(Trainer(of_cell, device, is_captured=False)) for of_cell in runs], dim=1)
    torch.testing.assert_close(losses, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_rates_that_change_and_runs_that_stop_reach_the_graph(device: torch.device) -> None:
    trainer = Trainer(runs_of("linear", [1e-2, 1e-2], warmup_steps=4, stop_at=2.0), device)
    losses_of(trainer)
    assert isinstance(trainer.optimiser, RunAdamW)
    assert trainer.captured is not None
    assert trainer.captured.is_replaying

    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.optimiser.set_rates(1.0)
    trainer.optimiser.freeze(0)
    losses_of(trainer)

    moved = [
        (now - then).abs().flatten(1).amax(1) for now, then in zip(trainer.model.parameters(), before, strict=True)
    ]
    assert max(float(change[0]) for change in moved) == 0
    assert max(float(change[1]) for change in moved) > 0


@pytest.mark.gpu
def test_a_curriculum_is_not_captured(device: torch.device) -> None:
    assert Trainer(runs_of("linear", [1e-3], schedule="geometric-curriculum"), device).captured is None


@pytest.mark.gpu
def test_a_step_that_waits_for_the_device_is_taken_as_it_is(device: torch.device) -> None:
    def step(inputs: Tensor, _targets: Tensor, _columns: Tensor) -> Tensor:
        return inputs * float(inputs.sum())  # the host asks for a number: no graph can hold that

    captured = CapturedStep(step, device)
    batch = torch.arange(3.0, device=device)
    outs = [captured(batch, batch, batch) for _ in range(WARM_UP_STEPS)]
    with pytest.warns(RuntimeWarning, match="not replayed"):
        outs.append(captured(batch, batch, batch))
    outs.append(captured(batch, batch, batch))

    assert captured.failure is not None
    assert not captured.is_replaying
    assert all(torch.equal(out, 3 * batch) for out in outs)
