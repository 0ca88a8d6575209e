"""Steps of the optimiser, and schedules of the learning rates."""

import math

import pytest
import torch
from torch import Tensor, nn

from synthbench.suites import load_suite
from synthbench.training.optimiser import FusedAdamW, RunAdamW, make_optimiser
from synthbench.training.schedule import Schedule, make_schedule
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


def test_parameters_that_were_moved_lie_as_if_allocated_alone() -> None:
    parameters = [nn.Parameter(tensor) for tensor in of_shapes(torch.float32, torch.Generator().manual_seed(0))]
    RunAdamW(parameters, RATES, SETTINGS)

    assert all(parameter.is_contiguous() and parameter.data_ptr() % 64 == 0 for parameter in parameters)
    assert len({parameter.untyped_storage().data_ptr() for parameter in parameters}) == 1


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
    return make_schedule(SETTINGS.model_copy(update={"schedule": schedule, "steps": steps, **settings}))


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
    ids=lambda of: type(of).__name__,
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
