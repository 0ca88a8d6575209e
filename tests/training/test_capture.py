"""Steps replayed from a CUDA graph: what can be said of them on a CPU, and the rest on a GPU."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from synthbench.runner.plan import make_cells
from synthbench.suites import load_suite
from synthbench.training.capture import WARM_UP_STEPS, CapturedStep
from synthbench.training.cell import Cell, Run
from synthbench.training.optimiser import RunAdamW, make_optimiser
from synthbench.training.stream import device_blocks
from synthbench.training.train import Trainer

SETTINGS = load_suite("paper").training
NUM_STEPS = 8

Need = Callable[[str, bool, str], None]


def cell_of(mechanism: str, *, device_type: str = "cpu", schedule: str = "constant", task: str = "reverse") -> Cell:
    suite = load_suite("paper")
    training = suite.training.model_copy(update={"schedule": schedule, "steps": NUM_STEPS})
    (cell,) = make_cells(
        suite.model_copy(update={"training": training}),
        {task: {"length": "16"}},
        {mechanism: {}},
        device_type=device_type,
        is_full=False,
    )
    return cell


def runs_of(cell: Cell, rates: list[float]) -> list[Run]:
    return [Run(cell, seed, rate) for seed, rate in enumerate(rates)]


def losses_of(trainer: Trainer) -> Tensor:
    batch_size = 16
    blocks = device_blocks(trainer.runs, "train", num_batches=NUM_STEPS, batch_size=batch_size, device=trainer.device)
    losses: list[Tensor] = []
    for inputs, targets, columns in blocks:
        for batch, labels in zip(inputs, targets, strict=True):
            trainer.schedule.apply(len(losses), trainer.optimiser, trainer.model)
            losses.append(trainer.step(batch, labels, columns))
    return torch.stack(losses)


def test_on_a_cpu_nothing_is_captured() -> None:
    assert Trainer(runs_of(cell_of("linear"), [1e-3]), torch.device("cpu")).captured is None


def test_a_capturable_optimiser_keeps_its_tensors_in_place() -> None:
    parameter = nn.Parameter(torch.ones(2, 3))
    optimiser = make_optimiser([parameter], [0.1, 0.2], SETTINGS, is_capturable=True)
    assert isinstance(optimiser, RunAdamW)
    (part,) = optimiser.parts
    places = [tensor.data_ptr() for tensor in (parameter, *part._buffers)]
    corrections = optimiser._corrections

    for share in (0.5, 1.0):
        optimiser.set_rates(share)
        parameter.grad = torch.ones_like(parameter)
        optimiser.step()

    assert [tensor.data_ptr() for tensor in (parameter, *part._buffers)] == places
    assert all(now is before for now, before in zip(optimiser._corrections, corrections, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("mechanism", ["softmax", "linear", "slay", "performer", "cosformer", "gla", "rewa-fourier"])
@pytest.mark.parametrize("rates", [[1e-3, 1e-3], [1e-3, 3e-3, 1e-2]], ids=["one rate", "rates"])
def test_a_replayed_step_is_the_step(need: Need, mechanism: str, rates: list[float]) -> None:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")
    cell, device = cell_of(mechanism, device_type="cuda"), torch.device("cuda")
    replayed, plain = (Trainer(runs_of(cell, rates), device, is_captured=is_captured) for is_captured in (True, False))
    before = torch.cat([parameter.detach().flatten() for parameter in plain.model.parameters()])

    losses = losses_of(replayed), losses_of(plain)

    assert replayed.captured is not None
    assert replayed.captured.failure is None
    assert replayed.captured.is_replaying
    assert plain.captured is None
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    # Of all together: where a gradient is rounding error, as that of the keys' bias in softmax attention, AdamW makes a
    # step of it.
    moved, expected = (
        torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()]) - before
        for trainer in (replayed, plain)
    )
    assert float((moved - expected).norm()) <= 1e-2 * float(expected.norm())


@pytest.mark.gpu
def test_tasks_that_share_a_graph_train_as_they_do_apart(need: Need) -> None:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")
    device = torch.device("cuda")
    cells = [cell_of("slay", device_type="cuda", task=task) for task in ("parity", "reverse", "first_token")]
    runs = [runs_of(cell, [1e-3, 1e-2]) for cell in cells]
    together = Trainer([run for of_cell in runs for run in of_cell], device)

    losses = losses_of(together)

    assert together.captured is not None
    assert together.captured.is_replaying
    apart = torch.cat([losses_of(Trainer(of_cell, device, is_captured=False)) for of_cell in runs], dim=1)
    torch.testing.assert_close(losses, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_rates_that_change_and_runs_that_stop_reach_the_graph(need: Need) -> None:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")
    cell = cell_of("linear", device_type="cuda")
    training = cell.suite.training.model_copy(update={"warmup_steps": 4, "stop_at": 2.0})
    cell = replace(cell, suite=cell.suite.model_copy(update={"training": training}))
    trainer = Trainer(runs_of(cell, [1e-2, 1e-2]), torch.device("cuda"))
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
def test_a_curriculum_is_not_captured(need: Need) -> None:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")
    cell = cell_of("linear", device_type="cuda", schedule="geometric-curriculum")

    assert Trainer(runs_of(cell, [1e-3]), torch.device("cuda")).captured is None


@pytest.mark.gpu
def test_a_step_that_waits_for_the_device_is_taken_as_it_is(need: Need) -> None:
    need("cuda", torch.cuda.is_available(), "there is no CUDA device")

    def step(inputs: Tensor, _targets: Tensor, _columns: Tensor) -> Tensor:
        return inputs * float(inputs.sum())  # the host asks for a number: no graph can hold that

    captured = CapturedStep(step, torch.device("cuda"))
    batch = torch.arange(3.0, device="cuda")
    outs = [captured(batch, batch, batch) for _ in range(WARM_UP_STEPS)]
    with pytest.warns(RuntimeWarning, match="not replayed"):
        outs.append(captured(batch, batch, batch))
    outs.append(captured(batch, batch, batch))

    assert captured.failure is not None
    assert not captured.is_replaying
    assert all(torch.equal(out, 3 * batch) for out in outs)
