from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from synthbench.suites import load_suite
from synthbench.training.optimiser import RunAdamW, make_optimiser

SETTINGS = load_suite("paper").training
RATES = [1e-1, 1e-2, 1e-3]


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


@pytest.mark.parametrize(
    ("dtypes", "rtol"),
    [([torch.float32], 0), ([torch.float64], 0), ([torch.float32, torch.float64], 0), ([torch.float64], 1e-12)],
    ids=["float32", "float64", "both", "capturable"],
)
def test_the_flat_update_is_that_of_each_parameter_bit_for_bit_or_nearly_if_it_can_be_captured(
    dtypes: list[torch.dtype], rtol: float
) -> None:
    rng = torch.Generator().manual_seed(0)
    values = [tensor for dtype in dtypes for tensor in of_shapes(dtype, rng)]
    parameters = [nn.Parameter(tensor.clone()) for tensor in values]
    flat, plain = RunAdamW(parameters, RATES, SETTINGS, is_capturable=rtol > 0), PlainAdamW(values, RATES)
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
        flat.advance()
        flat.update()
        plain.step(gradients, 1 / (1 + step))

        for parameter, expected in zip(parameters, plain.parameters, strict=True):
            torch.testing.assert_close(parameter.detach(), expected, rtol=rtol, atol=rtol / 100)


def test_parameters_that_were_moved_lie_as_if_allocated_alone() -> None:
    parameters = [nn.Parameter(tensor) for tensor in of_shapes(torch.float32, torch.Generator().manual_seed(0))]
    RunAdamW(parameters, RATES, SETTINGS)

    assert all(parameter.is_contiguous() and parameter.data_ptr() % 64 == 0 for parameter in parameters)
    assert len({parameter.untyped_storage().data_ptr() for parameter in parameters}) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
@pytest.mark.parametrize("rates", [[1e-2], [1e-2, 3e-2], RATES])
def test_the_parameters_of_each_run_move_as_in_pytorch_and_frozen_ones_stay(
    rates: list[float], dtype: torch.dtype
) -> None:
    rng = torch.Generator().manual_seed(0)
    first = torch.randn(len(rates), 3, 2, dtype=dtype, generator=rng)
    moved, alone = nn.Parameter(first.clone()), [nn.Parameter(values.clone()) for values in first]
    frozen = nn.Parameter(torch.arange(2).expand(len(rates), 2).clone(), requires_grad=False)
    settings = SETTINGS.model_copy(update={"weight_decay": 0.1})
    optimiser = make_optimiser([frozen, moved], rates, settings)
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
