"""Random numbers, and attention by the definition, for tests of several rooms."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Draw N(0, 1) numbers in float64 from a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mix(kernel: Tensor, v: Tensor, guard: str = "add", delta: float = 1e-6) -> Tensor:
    """Mix values by kernel values, one position at a time: Σ κ v / N(Σ κ)."""
    rows = []
    for t in range(v.shape[-2]):
        total = kernel[..., t, : t + 1].sum(-1, keepdim=True)
        guarded = total + delta if guard == "add" else torch.clamp(total, min=delta)
        rows.append((kernel[..., t, : t + 1].unsqueeze(-1) * v[..., : t + 1, :]).sum(-2) / guarded)
    return torch.stack(rows, dim=-2)


def with_gradients(out: Tensor, inputs: Iterable[Tensor]) -> list[Tensor]:
    """The outputs, then the gradients of the sum of their sines by every input."""
    return [out.detach(), *torch.autograd.grad(out.sin().sum(), list(inputs), materialize_grads=True)]


def value_and_gradients(form: Callable[..., Tensor], inputs: Iterable[Tensor]) -> list[Tensor]:
    """Outputs of a form for some inputs, and the gradients with respect to these inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    return with_gradients(form(*leaves), leaves)


def is_repeatable(out: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Return whether a second backward pass gives the gradients of the first."""
    first, second = (torch.autograd.grad(out.sum(), inputs, retain_graph=True) for _ in range(2))
    return all(map(torch.equal, first, second))
