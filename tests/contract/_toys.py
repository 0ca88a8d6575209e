"""Mechanisms of one function each, and those that see the future."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from synthbench.mechanisms import Mechanism


class Toy(Mechanism):
    """A mechanism that keeps no state and has no options."""

    def state_elements(self, length: int) -> int:
        return length * self.model_dim


Forward = Callable[[Any, Tensor], Any]


def toy(name: str, forward: Forward, initialise: Callable[[Any, Any], None] | None = None, **methods: Any) -> Any:
    """A mechanism from its functions; what ``initialise`` sets is drawn from the generator or the global one."""
    built = {} if initialise is None else {"initialise": initialise}
    return type(name, (Toy,), {"__module__": __name__, "name": name, "forward": forward, **built, **methods})


def stated(**make: Callable[[Any, Any], Any]) -> Callable[[Any, Any], None]:
    """An ``initialise`` that sets attributes, each made from the mechanism and its generator."""

    def initialise(self: Any, generator: torch.Generator | None) -> None:
        assert generator is not None
        for name, function in make.items():
            setattr(self, name, function(self, generator))

    return initialise


def softmax_of(sees: int) -> Forward:
    """Attention in which a query sees the keys up to ``sees`` positions ahead."""

    def forward(_: Any, x: Tensor) -> Tensor:
        scores = x @ x.mT / x.shape[-1] ** 0.5
        mask = torch.ones_like(scores, dtype=torch.bool).tril(sees)
        mixed: Tensor = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ x
        return mixed

    return forward


def convolve(x: Tensor, size: int) -> Tensor:
    decay = torch.arange(x.shape[-2], dtype=x.dtype).neg().exp2().unsqueeze(-1)
    product = torch.fft.rfft(x, n=size, dim=-2) * torch.fft.rfft(decay, n=size, dim=-2)
    whole: Tensor = torch.fft.irfft(product, n=size, dim=-2)
    return whole[..., : x.shape[-2], :]


def divide_by_sequence_norm(_: Any, x: Tensor) -> Tensor:
    return x / (1 + x.square().mean((-1, -2), keepdim=True)).sqrt()


def subtract_key_max(_: Any, x: Tensor) -> Tensor:
    """As in the original code of FAVOR+; at scale 1 this leak is 1e-6 of the output: it cancels but for the guard."""
    query, exponents = x.exp() / x.exp().sum(-1, keepdim=True), x - x.square().sum(-1, keepdim=True) / 2
    key = (exponents - exponents.amax((-1, -2), keepdim=True)).exp()
    kernel = (query @ key.mT).tril()
    return kernel @ x / (kernel.sum(-1, keepdim=True) + 1e-8)


LEAKS = {
    unit.name: unit
    for unit in [
        toy("mask-off-by-one", softmax_of(1)),
        toy("sequence-norm", divide_by_sequence_norm),
        toy("mask-after-softmax", lambda _, x: (x @ x.mT / x.shape[-1] ** 0.5).softmax(-1).tril() @ x),
        # Gradients see nothing of this one, and few inputs cross its threshold.
        toy("hard-gate", lambda _, x: x * (x.mean((-1, -2), keepdim=True) > 0).to(x.dtype) + x.cumsum(-2)),
        toy("key-max", subtract_key_max),
        toy("circular-convolution", lambda _, x: convolve(x, max(x.shape[-2], 2))),
        toy("mean-taken", lambda _, x: x - x.mean(-2, keepdim=True)),
        toy("unmasked", lambda _, x: (x @ x.mT).softmax(-1) @ x),
        toy("window-of-three", lambda _, x: pad(x, (0, 0, 0, 3)).unfold(-2, 4, 1).mean(-1)),
    ]
}
