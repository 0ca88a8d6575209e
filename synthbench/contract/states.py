"""How many numbers a mechanism carries from the past into the future, measured from outside."""

from typing import cast

import torch

from synthbench.errors import ContractError
from synthbench.mechanisms import Mechanism
from synthbench.mechanisms._hybrid import Hybrid

MOST = 300
"""Largest state that is measured: each number takes a backward pass."""
LONGEST = 128
"""Most tokens of the past."""
MARGIN = 8
"""Probes beyond what a mechanism says it keeps, so that a state that is too small for it shows."""
SMALLEST = 1e-7
"""Singular values below this, relative to the largest, are rounding, which may be that of float32."""


def numbers_carried(mechanism: Mechanism, past: int, most: int) -> int:
    """Numbers of the past that the outputs after it depend on; at most ``most``.

    If everything a mechanism keeps of its first inputs is n numbers, a later output is a function of these and of later
    inputs, so its derivatives by all first inputs span n dimensions at most. They are taken along random directions of
    the outputs. A decay can hide numbers, so this is a lower bound of what is kept.

    Args:
        mechanism: In float64, for sequences of up to ``2 * past`` tokens.
        past: Tokens of the past; as many follow.
        most: Directions that are tried.
    """
    generator = torch.Generator().manual_seed(past)
    x = torch.randn(1, 2 * past, mechanism.model_dim, generator=generator, dtype=torch.float64)
    first = x[:, :past].clone().requires_grad_()
    later = mechanism(torch.cat([first, x[:, past:]], dim=1))[:, past:]
    if not later.requires_grad:
        return 0
    gradients = [
        torch.autograd.grad(later, first, direction, retain_graph=True, materialize_grads=True)[0].flatten()
        for direction in torch.randn(most, *later.shape, generator=generator, dtype=torch.float64)
    ]
    sizes = torch.linalg.svdvals(torch.stack(gradients))
    return int((sizes > SMALLEST * sizes[0]).sum())


def check_state(mechanism: Mechanism) -> None:
    """Check that a mechanism says of its state no less than what it carries, where that is small enough to measure.

    Raises:
        ContractError: If it carries more numbers than its ``state_elements`` says.
    """
    parts = cast("list[Mechanism]", [*mechanism.layers] if isinstance(mechanism, Hybrid) else [mechanism])
    past = MARGIN
    while True:
        said = sum(part.state_elements(past) for part in parts)
        if said > MOST or 2 * past > min(2 * LONGEST, mechanism.max_length):
            return  # or it keeps every input so far, and nothing can show less
        if past * mechanism.model_dim >= said + MARGIN:
            break
        past *= 2
    carried = numbers_carried(mechanism, past, said + MARGIN)
    if carried > said:
        raise ContractError(
            f"mechanism {mechanism.name!r} says that it keeps {said} numbers after {past} tokens (state_elements), and "
            f"what follows depends on at least {carried}"
        )
