"""AdamW for members: PyTorch's fused one where all have one rate, else the same update with a rate for each."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from synthbench.suites.config import TrainingSettings


class MemberAdamW:
    """AdamW with a learning rate for each slice of a parameter's first axis.

    What changes from step to step lies in tensors that keep their place, or is set by :meth:`advance`, so that a
    captured :meth:`update` can be replayed.

    Source: Loshchilov & Hutter (2019), algorithm 2, with a constant schedule.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rates: Sequence[float],
        settings: TrainingSettings,
        *,
        is_capturable: bool = False,
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
        self._initial_rates = [rate.clone() for rate in self.rates]
        first = self.parameters[0]
        self._places = (first.new_zeros(()), first.new_zeros(())) if is_capturable else None
        self._corrections: tuple[float, float] | tuple[Tensor, Tensor] = self._places or (0.0, 0.0)

    def step(self) -> None:
        """Take one step."""
        self.advance()
        self.update()

    def advance(self) -> None:
        """Count the step and work out how its moments are corrected for their beginning at zero."""
        beta1, beta2 = self.settings.betas
        self.num_steps += 1
        corrections = 1 - beta1**self.num_steps, (1 - beta2**self.num_steps) ** 0.5
        if self._places is None:
            self._corrections = corrections
        else:
            for place, value in zip(self._places, corrections, strict=True):
                place.fill_(value)

    @torch.no_grad()
    def update(self) -> None:
        """Decay, update the moments, move against the bias-corrected gradient."""
        beta1, beta2 = self.settings.betas
        correction1, root_of_correction2 = self._corrections
        states = zip(self.parameters, self.first_moments, self.second_moments, self.rates, strict=True)
        for parameter, first, second, rate in states:
            gradient = parameter.grad
            if gradient is None:
                continue
            parameter.mul_(1 - rate * self.settings.weight_decay)
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            scale: Tensor = second.sqrt().div_(root_of_correction2).add_(self.settings.eps)
            parameter.sub_(rate / correction1 * first / scale)

    def set_rates(self, share: float) -> None:
        """Set every learning rate to a share of what it was at the beginning."""
        for rate, initial in zip(self.rates, self._initial_rates, strict=True):
            torch.mul(initial, share, out=rate)

    def freeze(self, member: int) -> None:
        """Leave a member's parameters as they are from now on."""
        for rate in (*self._initial_rates, *self.rates):
            rate[member] = 0

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None


def make_optimiser(
    parameters: Iterable[nn.Parameter],
    learning_rates: Sequence[float],
    settings: TrainingSettings,
    *,
    is_capturable: bool = False,
) -> torch.optim.AdamW | MemberAdamW:
    """AdamW over parameters whose first axis is the member axis; ``learning_rates`` has one value a member.

    One that is capturable keeps what changes from step to step in tensors, for a CUDA graph.
    """
    parameters = list(parameters)
    must_freeze = settings.stop_at is not None and len(learning_rates) > 1
    if len(set(learning_rates)) == 1 and not must_freeze:
        rate = learning_rates[0]
        optimiser = torch.optim.AdamW(
            parameters,
            lr=torch.tensor(rate, device=parameters[0].device) if is_capturable else rate,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=is_capturable,
        )
        if is_capturable:
            for group in optimiser.param_groups:
                group["lr"] = group["lr"].clone()  # it was the default itself
        return optimiser
    return MemberAdamW(parameters, learning_rates, settings, is_capturable=is_capturable)


def advance(optimiser: torch.optim.AdamW | MemberAdamW) -> None:
    """Do what a step needs to have done on the host."""
    if isinstance(optimiser, MemberAdamW):
        optimiser.advance()


def update(optimiser: torch.optim.AdamW | MemberAdamW) -> None:
    """Do what a step does on the device."""
    if isinstance(optimiser, MemberAdamW):
        optimiser.update()
    else:
        optimiser.step()


def set_rates(optimiser: torch.optim.AdamW | MemberAdamW, share: float) -> None:
    """Set the learning rate of every member to a share of what it was at the beginning."""
    if isinstance(optimiser, MemberAdamW):
        optimiser.set_rates(share)
        return
    initial = optimiser.defaults["lr"]
    for group in optimiser.param_groups:
        if isinstance(initial, Tensor):
            torch.mul(initial, share, out=group["lr"])
        else:
            group["lr"] = initial * share
