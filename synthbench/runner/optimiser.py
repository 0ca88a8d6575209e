"""AdamW for members: PyTorch's fused one where all have one rate, else the same update with a rate for each."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from synthbench.suites.config import TrainingSettings


class MemberAdamW:
    """AdamW with a learning rate for each slice of a parameter's first axis.

    Source: Loshchilov & Hutter (2019), algorithm 2, with a constant schedule.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], learning_rates: Sequence[float], settings: TrainingSettings
    ) -> None:
        """Begin with zero moments."""
        self.parameters = list(parameters)
        self.settings = settings
        self.num_steps = 0
        self.first_moments = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second_moments = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.rates = [
            parameter.new_tensor(learning_rates).view(-1, *[1] * (parameter.ndim - 1)) for parameter in self.parameters
        ]
        self._initial_rates = self.rates

    @torch.no_grad()
    def step(self) -> None:
        """Decay, update the moments, move against the bias-corrected gradient."""
        beta1, beta2 = self.settings.betas
        self.num_steps += 1
        correction1, correction2 = 1 - beta1**self.num_steps, 1 - beta2**self.num_steps
        states = zip(self.parameters, self.first_moments, self.second_moments, self.rates, strict=True)
        for parameter, first, second, rate in states:
            gradient = parameter.grad
            if gradient is None:
                continue
            parameter.mul_(1 - rate * self.settings.weight_decay)
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            scale: Tensor = second.sqrt().div_(correction2**0.5).add_(self.settings.eps)
            parameter.sub_(rate / correction1 * first / scale)

    def set_rates(self, share: float) -> None:
        """Set every learning rate to a share of what it was at the beginning."""
        self.rates = [rate * share for rate in self._initial_rates]

    def freeze(self, member: int) -> None:
        """Leave a member's parameters as they are from now on."""
        for rate in (*self._initial_rates, *self.rates):
            rate[member] = 0

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None


def make_optimiser(
    parameters: Iterable[nn.Parameter], learning_rates: Sequence[float], settings: TrainingSettings
) -> torch.optim.AdamW | MemberAdamW:
    """AdamW over parameters whose first axis is the member axis; ``learning_rates`` has one value a member."""
    must_freeze = settings.stop_at is not None and len(learning_rates) > 1
    if len(set(learning_rates)) == 1 and not must_freeze:
        return torch.optim.AdamW(
            parameters,
            lr=learning_rates[0],
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            fused=True,
        )
    return MemberAdamW(parameters, learning_rates, settings)


def set_rates(optimiser: torch.optim.AdamW | MemberAdamW, share: float) -> None:
    """Set the learning rate of every member to a share of what it was at the beginning."""
    if isinstance(optimiser, MemberAdamW):
        optimiser.set_rates(share)
        return
    for group in optimiser.param_groups:
        group["lr"] = optimiser.defaults["lr"] * share
