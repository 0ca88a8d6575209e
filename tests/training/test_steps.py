"""Steps of the optimiser and schedules of the learning rates; steps replayed from a CUDA graph, most of it on a GPU."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synthbench.suites import load_suite
from synthbench.training.capture import WARM_UP_STEPS, CapturedStep
from synthbench.training.cell import Run
from synthbench.training.optimiser import FusedAdamW, RunAdamW, make_optimiser
from synthbench.training.schedule import Schedule
from synthbench.training.train import Trainer
from tests.training.cells import make_cell

SETTINGS = load_suite("paper").training
RATES = [1e-1, 1e-2, 1e-3]


SHAPES = [(3, 5, 7), (3, 1), (3, 130), (3, 2, 1, 64), (3, 11)]
FROZEN_AT = 6


def of_shapes(dtype: torch.dtype, rng: torch.Generator) -> list[Tensor]:
    return [torch.randn(shape, generator=rng, dtype=dtype) for shape in SHAPES]


@pytest.mark.parametrize(
    ("dtypes", "rtol"),
    [([torch.float32], 0), ([torch.float64], 0), ([torch.float32, torch.float64], 0), ([torch.float64], 1e-12)],
    ids=["float32", "float64", "both", "capturable"],
)
def test_the_flat_update_is_that_of_each_parameter_or_nearly_if_captured(
    dtypes: list[torch.dtype], rtol: float
) -> None:
    rng = torch.Generator().manual_seed(0)
    values = [tensor for dtype in dtypes for tensor in of_shapes(dtype, rng)]
    parameters, apart = ([nn.Parameter(tensor.clone()) for tensor in values] for _ in range(2))
    optimisers = [RunAdamW(parameters, RATES, SETTINGS, is_capturable=rtol > 0)]
    optimisers += [RunAdamW([each], RATES, SETTINGS) for each in apart]
    without_gradient: list[set[int]] = [set(), {0}, {1, 2}, {4}, {0, 2, 4}, set(), {3}, set(range(len(values))), set()]
    for step, missing in enumerate(without_gradient):
        for index, gradient in enumerate(tensor for dtype in dtypes for tensor in of_shapes(dtype, rng)):
            parameters[index].grad = apart[index].grad = None if index in missing else gradient
        before = [parameter.detach().clone() for parameter in parameters]
        for optimiser in optimisers:
            if step == FROZEN_AT:
                optimiser.freeze(1)
            optimiser.set_rates(1 / (1 + step))
            optimiser.advance()
            optimiser.update()

        for index, (parameter, alone, was) in enumerate(zip(parameters, apart, before, strict=True)):
            torch.testing.assert_close(parameter, alone, rtol=rtol, atol=rtol / 100)
            assert torch.equal(parameter, was) == (index in missing)
            assert torch.equal(parameter[1], was[1]) == (index in missing or step >= FROZEN_AT)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
@pytest.mark.parametrize("rates", [[1e-2], [1e-2, 1e-2], [1e-2, 3e-2], RATES])
def test_parameters_of_each_run_move_as_in_pytorch_and_frozen_ones_stay(rates: list[float], dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    first = torch.randn(len(rates), 3, 2, dtype=dtype, generator=rng)
    moved, alone = nn.Parameter(first.clone()), [nn.Parameter(values.clone()) for values in first]
    frozen = nn.Parameter(torch.arange(2).expand(len(rates), 2).clone(), requires_grad=False)
    settings = SETTINGS.model_copy(update={"weight_decay": 0.1})
    optimiser = make_optimiser([frozen, moved], [2 * rate for rate in rates], settings)
    assert isinstance(optimiser, FusedAdamW) == (len(set(rates)) == 1 and dtype == torch.float64)
    for share in (0.7, 0.5):  # shares do not multiply
        optimiser.set_rates(share)
    singles = [
        torch.optim.AdamW([each], lr=rate, betas=settings.betas, eps=settings.eps, weight_decay=0.1)
        for each, rate in zip(alone, rates, strict=True)
    ]
    for _ in range(10):
        for parameter in (moved, *alone):
            parameter.grad = None
            torch.autograd.backward((parameter.abs() ** 3 + parameter.real).sum())
        optimiser.advance()
        optimiser.update()
        for each in singles:
            each.step()
    rtol, atol = (1e-12, 1e-14) if dtype == torch.float64 else (None, None)
    torch.testing.assert_close(moved.detach(), torch.stack([each.detach() for each in alone]), rtol=rtol, atol=atol)
    assert torch.equal(frozen, torch.arange(2).expand(len(rates), 2))


def named(schedule: str, steps: int, **settings: int) -> Schedule:
    """The schedule that a suite names."""
    return Schedule(SETTINGS.model_copy(update={"schedule": schedule, "steps": steps, **settings}))


FOUR_PHASES = [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.08, 0.04]


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        (named("constant", 3), [1.0, 1.0, 1.0]),
        (named("geometric-curriculum", 10), FOUR_PHASES),
        (named("curriculum-rates", 10), FOUR_PHASES),
        (
            named("warmup-cosine", 14, warmup_steps=4),
            [0.25, 0.5, 0.75, 1.0, *((1 + math.cos(math.pi * step / 10)) / 2 for step in range(10))],
        ),
        (named("warmup-stable-decay", 8, warmup_steps=2, decay_steps=4), [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25]),
    ],
    ids=lambda of: of.settings.schedule if isinstance(of, Schedule) else "shares",
)
def test_the_rate_is_this_share_of_the_full_one_at_every_step(schedule: Schedule, shares: list[float]) -> None:
    assert [schedule.share(step) for step in range(len(shares))] == pytest.approx(shares)


@pytest.mark.parametrize(
    ("mechanism", "num_steps"),
    [("rewa-geometric", 1), ("rewa-geometric", 3), ("rewa-adaptive", 8), ("rewa-mixture", 8), ("rewa-lsh", 8)],
)
def test_the_curriculum_adds_geometries_and_its_control_begins_with_all(mechanism: str, num_steps: int) -> None:
    runs = make_cell("copy", mechanism, length=4, learning_rates=(1e-2,)).runs([0, 1])
    trainer = Trainer(runs, torch.device("cpu"))
    active = [buffer for name, buffer in trainer.model.named_buffers() if name.endswith("active")]
    assert len(active) == len(trainer.model.layers)

    def acting(schedule: Schedule) -> list[set[float]]:
        """For every step, the geometries that act in a run, in each layer."""
        counts = []
        for step in range(num_steps):
            schedule.apply(step, trainer.optimiser, trainer.model)
            counts.append({int(some.sum()) / len(trainer.runs) for some in active})
        return counts

    phases = [4 * step // num_steps + 1 for step in range(num_steps)]
    assert acting(named("curriculum-rates", num_steps)) == [{3}] * num_steps
    assert acting(named("geometric-curriculum", num_steps)) == [{min(phase, 3)} for phase in phases]


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
