"""AdamW for runs trained together: PyTorch's fused version, or the same update with one learning rate per run."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby, pairwise

import torch
from torch import Tensor, nn

from synthbench.layers import UndecayedParameter
from synthbench.suites.config import TrainingSettings

ALIGNMENT_BYTES = 512
"""Alignment of tensors by CUDA's allocator, in bytes; the CPU's allocator aligns to 64 bytes.

The last bits of a matrix product depend on the alignment of its factors, so moved parameters are aligned in this way.
"""

Corrections = tuple[float, float] | tuple[Tensor, Tensor]


class FlatParameters:
    """Parameters with the same precision and weight decay, joined in one tensor, with their AdamW moments.

    Every parameter becomes a contiguous view of the joined tensor, so that one update serves all parameters. If some
    parameters have no gradient, each unbroken series of parameters with gradients is updated separately. Padding
    between parameters keeps each parameter aligned in memory. In the padding, learning rate and gradient are 0. A
    complex number is treated as two real numbers, as in PyTorch's AdamW.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rates: Sequence[float], decay: float) -> None:
        """Move the parameters into one tensor; ``learning_rates`` has one rate per run. The moments begin at 0."""
        self.parameters, self.decay = list(parameters), decay
        parts = [_as_real(parameter.detach()) for parameter in self.parameters]
        first = parts[0]
        unit = ALIGNMENT_BYTES // first.element_size()
        self._shapes = [part.shape for part in parts]
        sizes = [part.numel() for part in parts]
        lengths = [math.ceil(size / unit) * unit for size in sizes]
        self._gaps = [first.new_zeros(length - size) for length, size in zip(lengths, sizes, strict=True)]
        self._ends = [0, *accumulate(lengths)]
        buffers = [first.new_zeros(self._ends[-1]) for _ in range(6)]
        self.values, self.first_moments, self.second_moments, self.rates, *_ = self._buffers = buffers
        for parameter, part, values in zip(self.parameters, parts, self._views(self.values), strict=True):
            values.copy_(part)
            parameter.data = torch.view_as_complex(values) if parameter.is_complex() else values
        rates = first.new_tensor(learning_rates)
        for of_parameter in self._views(self.rates):
            of_parameter.copy_(rates.view(-1, *[1] * (of_parameter.ndim - 1)))
        self._initial_rates = self.rates.clone()

    def update(self, settings: TrainingSettings, corrections: Corrections) -> None:
        """Take one AdamW step: apply weight decay, update both moments, and change the parameters.

        ``corrections`` are the bias corrections of the moments after t steps: 1 - beta1^t and sqrt(1 - beta2^t).
        """
        beta1, beta2 = settings.betas
        correction1, root_of_correction2 = corrections
        for run, pieces in self._runs():
            values, first, second, rate, gradient, change = (buffer[run] for buffer in self._buffers)
            torch.cat(pieces, out=gradient)
            values.mul_(torch.mul(rate, -self.decay, out=change).add_(1))
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            scale = torch.sqrt(second, out=gradient).div_(root_of_correction2).add_(settings.eps)
            values.sub_(torch.div(rate, correction1, out=change).mul_(first).div_(scale))

    def set_rates(self, share: float) -> None:
        """Set every rate to ``share`` times its initial value."""
        torch.mul(self._initial_rates, share, out=self.rates)

    def freeze(self, run: int) -> None:
        """Set the learning rates of the run with index ``run`` to 0 permanently."""
        for rates in (*self._views(self._initial_rates), *self._views(self.rates)):
            rates[run] = 0

    def _views(self, flat: Tensor) -> list[Tensor]:
        """Return each parameter's part of a flat tensor, in the parameter's shape, plus a last axis of 2 if complex."""
        places = zip(self._ends, self._shapes, strict=False)
        return [flat[start : start + shape.numel()].view(shape) for start, shape in places]

    def _runs(self) -> Iterator[tuple[slice, list[Tensor]]]:
        """Yield the slice and gradients of each series of neighbouring parameters with gradients; padding gets 0."""
        entries = zip(self.parameters, self._gaps, pairwise(self._ends), strict=True)
        for has_gradient, neighbours in groupby(entries, lambda entry: entry[0].grad is not None):
            if has_gradient:
                parameters, gaps, places = zip(*neighbours, strict=True)
                gradients = (_as_real(parameter.grad).flatten() for parameter in parameters)
                pieces = chain.from_iterable(zip(gradients, gaps, strict=True))
                yield slice(places[0][0], places[-1][1]), list(pieces)


class RunAdamW:
    """AdamW with one learning rate per run; the first axis of every parameter is the run axis.

    With ``is_capturable``, values that change between steps are kept in tensors with fixed addresses, so that a CUDA
    graph can replay :meth:`update`. The parameters are moved: each becomes a view of a larger tensor.

    Source: Loshchilov & Hutter (2019), algorithm 2. As in PyTorch, the weight decay is multiplied by the learning rate.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rates: Sequence[float],
        settings: TrainingSettings,
        *,
        is_capturable: bool = False,
    ) -> None:
        """Move the parameters into one tensor per precision and weight decay; the moments begin at 0."""
        self.settings = settings
        self.num_steps = 0
        alike: dict[tuple[torch.dtype, float], list[nn.Parameter]] = {}
        for parameter in parameters:
            precision = parameter.dtype.to_real()
            alike.setdefault((precision, decay_of(parameter, settings)), []).append(parameter)
        self.parts = [FlatParameters(some, learning_rates, decay) for (_dtype, decay), some in alike.items()]
        first = self.parts[0].values
        self._places = (first.new_zeros(()), first.new_zeros(())) if is_capturable else None
        self._corrections: Corrections = self._places or (0.0, 0.0)

    def advance(self) -> None:
        """Increase the step count, and compute the bias corrections of the moments."""
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
        """Update every parameter that has a gradient; all other parameters and their moments stay unchanged."""
        for part in self.parts:
            part.update(self.settings, self._corrections)

    def set_rates(self, share: float) -> None:
        """Set every learning rate to ``share`` times its initial value."""
        for part in self.parts:
            part.set_rates(share)

    def freeze(self, run: int) -> None:
        """Leave the parameters of the run with index ``run`` unchanged from now on."""
        for part in self.parts:
            part.freeze(run)

    def zero_grad(self) -> None:
        """Remove the gradients of all parameters."""
        for part in self.parts:
            for parameter in part.parameters:
                parameter.grad = None


class FusedAdamW(torch.optim.AdamW):
    """PyTorch's fused AdamW, for runs that share one learning rate."""

    def advance(self) -> None:
        """Do nothing: the fused step itself counts the steps and computes the bias corrections."""

    def update(self) -> None:
        """Take one step, entirely on the device of the parameters."""
        self.step()

    def set_rates(self, share: float) -> None:
        """Set the learning rate to ``share`` times its initial value."""
        initial = self.defaults["lr"]
        for group in self.param_groups:
            if isinstance(initial, Tensor):
                torch.mul(initial, share, out=group["lr"])
            else:
                group["lr"] = initial * share


Optimiser = FusedAdamW | RunAdamW


def _as_real(x: Tensor) -> Tensor:
    """View complex numbers as pairs of real ones on a new last axis; return real tensors unchanged."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def decay_of(parameter: nn.Parameter, settings: TrainingSettings) -> float:
    """Return a parameter's weight decay: 0 if the mechanism's authors do not decay it, else the suite's value."""
    return 0.0 if isinstance(parameter, UndecayedParameter) else settings.weight_decay


def make_optimiser(
    parameters: Iterable[nn.Parameter],
    learning_rates: Sequence[float],
    settings: TrainingSettings,
    *,
    is_capturable: bool = False,
) -> Optimiser:
    """Build AdamW for the trainable parameters, whose first axis is the run axis.

    ``learning_rates`` has one value per run. PyTorch's fused AdamW is used if all runs share one rate, no parameter is
    complex, and no run can stop before the others (with ``stop_at``, one of several runs can). Otherwise,
    :class:`RunAdamW` is used. With ``is_capturable``, a CUDA graph can replay a step.
    """
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    must_freeze = settings.stop_at is not None and len(learning_rates) > 1
    has_complex = any(parameter.is_complex() for parameter in parameters)
    if len(set(learning_rates)) == 1 and not must_freeze and not has_complex:
        rate = learning_rates[0]
        alike: dict[float, list[nn.Parameter]] = {}
        for parameter in parameters:
            alike.setdefault(decay_of(parameter, settings), []).append(parameter)
        optimiser = FusedAdamW(
            [{"params": some, "weight_decay": decay} for decay, some in alike.items()],
            lr=torch.tensor(rate, device=parameters[0].device) if is_capturable else rate,
            betas=settings.betas,
            eps=settings.eps,
            fused=True,
            capturable=is_capturable,
        )
        if is_capturable:
            for group in optimiser.param_groups:
                group["lr"] = group["lr"].clone()  # it was the same tensor as the default
        return optimiser
    return RunAdamW(parameters, learning_rates, settings, is_capturable=is_capturable)
