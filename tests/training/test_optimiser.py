import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from synthbench.suites import load_suite
from synthbench.training.optimiser import RunAdamW, make_optimiser

SETTINGS = load_suite("paper").training
RATES = [1e-1, 1e-2, 1e-3]


def trajectory(rates: list[float]) -> torch.Tensor:
    """A parameter [runs, 4] after ten steps on a quadratic bowl whose centre differs by run."""
    centre = torch.arange(len(RATES) * 4, dtype=torch.float64).view(-1, 4).sin()[: len(rates)]
    parameter = nn.Parameter(torch.ones(len(rates), 4, dtype=torch.float64))
    optimiser = make_optimiser([parameter], rates, SETTINGS)
    for _ in range(10):
        optimiser.zero_grad()
        torch.autograd.backward(((parameter - centre) ** 2).sum())
        optimiser.step()
    return parameter.detach()


def test_a_rate_for_each_run_is_adamw_for_each_run() -> None:
    together = trajectory(RATES)
    centre = torch.arange(len(RATES) * 4, dtype=torch.float64).view(-1, 4).sin()
    for run, rate in enumerate(RATES):
        parameter = nn.Parameter(torch.ones(4, dtype=torch.float64))
        alone = torch.optim.AdamW(
            [parameter], lr=rate, betas=SETTINGS.betas, eps=SETTINGS.eps, weight_decay=SETTINGS.weight_decay
        )
        for _ in range(10):
            alone.zero_grad()
            torch.autograd.backward(((parameter - centre[run]) ** 2).sum())
            alone.step()
        torch.testing.assert_close(together[run], parameter.detach(), rtol=1e-12, atol=1e-14)


def test_a_parameter_without_gradient_stays() -> None:
    parameter = nn.Parameter(torch.ones(2, 3))
    RunAdamW([parameter], [0.1, 0.2], SETTINGS).step()

    assert (parameter == 1).all()


SHAPES = [(3, 5, 7), (3, 1), (3, 130), (3, 2, 1, 64), (3, 11)]
FROZEN_AT = 6


def of_shapes(dtype: torch.dtype, rng: torch.Generator) -> list[Tensor]:
    return [torch.randn(shape, generator=rng, dtype=dtype) for shape in SHAPES]


class PlainAdamW:
    """The update of one parameter after the other, each with tensors of its own."""

    def __init__(self, parameters: Sequence[Tensor], learning_rates: Sequence[float]) -> None:
        self.parameters = [parameter.clone() for parameter in parameters]
        self.first_moments = [torch.zeros_like(parameter) for parameter in parameters]
        self.second_moments = [torch.zeros_like(parameter) for parameter in parameters]
        self.learning_rates = list(learning_rates)
        self.num_steps = 0

    def step(self, gradients: Sequence[Tensor | None], share: float) -> None:
        beta1, beta2 = SETTINGS.betas
        self.num_steps += 1
        correction1, root_of_correction2 = 1 - beta1**self.num_steps, (1 - beta2**self.num_steps) ** 0.5
        states = zip(self.parameters, self.first_moments, self.second_moments, gradients, strict=True)
        for parameter, first, second, gradient in states:
            if gradient is None:
                continue
            rate = share * parameter.new_tensor(self.learning_rates).view(-1, *[1] * (parameter.ndim - 1))
            parameter.mul_(1 - rate * SETTINGS.weight_decay)
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            scale = second.sqrt().div_(root_of_correction2).add_(SETTINGS.eps)
            parameter.sub_(rate / correction1 * first / scale)


@pytest.mark.parametrize("dtypes", [[torch.float32], [torch.float64], [torch.float32, torch.float64]], ids=str)
def test_the_flat_update_is_that_of_each_parameter_bit_for_bit(dtypes: list[torch.dtype]) -> None:
    rng = torch.Generator().manual_seed(0)
    values = [tensor for dtype in dtypes for tensor in of_shapes(dtype, rng)]
    parameters = [nn.Parameter(tensor.clone()) for tensor in values]
    flat, plain = RunAdamW(parameters, RATES, SETTINGS), PlainAdamW(values, RATES)
    without_gradient: list[set[int]] = [set(), {0}, {1, 2}, {4}, {0, 2, 4}, set(), {3}, set(range(len(values))), set()]
    for step, missing in enumerate(without_gradient):
        drawn = [tensor for dtype in dtypes for tensor in of_shapes(dtype, rng)]
        gradients = [None if index in missing else gradient for index, gradient in enumerate(drawn)]
        if step == FROZEN_AT:
            flat.freeze(1)
            plain.learning_rates[1] = 0.0
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        flat.set_rates(1 / (1 + step))
        flat.step()
        plain.step(gradients, 1 / (1 + step))

        for parameter, expected in zip(parameters, plain.parameters, strict=True):
            assert torch.equal(parameter, expected)


def test_parameters_that_were_moved_lie_as_if_allocated_alone() -> None:
    parameters = [nn.Parameter(tensor) for tensor in of_shapes(torch.float32, torch.Generator().manual_seed(0))]
    RunAdamW(parameters, RATES, SETTINGS)

    assert all(parameter.is_contiguous() and parameter.data_ptr() % 64 == 0 for parameter in parameters)
    assert len({parameter.untyped_storage().data_ptr() for parameter in parameters}) == 1




@pytest.mark.parametrize("rates", [[1e-2], [1e-2, 3e-2]])
def test_complex_parameters_move_as_in_pytorch_and_frozen_ones_stay(rates: list[float]) -> None:
    rng = torch.Generator().manual_seed(0)
    first = torch.randn(len(rates), 3, 2, dtype=torch.complex64, generator=rng)
    moved, alone = nn.Parameter(first.clone()), [nn.Parameter(values.clone()) for values in first]
    frozen = nn.Parameter(torch.arange(2).expand(len(rates), 2).clone(), requires_grad=False)
    settings = SETTINGS.model_copy(update={"weight_decay": 0.1})
    optimiser = make_optimiser([frozen, moved], rates, settings)
    singles = [
        torch.optim.AdamW([each], lr=rate, betas=settings.betas, eps=settings.eps, weight_decay=0.1)
        for each, rate in zip(alone, rates, strict=True)
    ]
    for _ in range(5):
        for parameters, steps in (([moved], [optimiser]), (alone, singles)):
            for parameter in parameters:
                parameter.grad = None
                torch.autograd.backward((parameter.abs() ** 3 + parameter.real * parameter.imag).sum())
            for each in steps:
                each.step()
    torch.testing.assert_close(moved.detach(), torch.stack([each.detach() for each in alone]))
    assert torch.equal(frozen, torch.arange(2).expand(len(rates), 2))
