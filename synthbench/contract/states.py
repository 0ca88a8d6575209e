"""Count the numbers that a mechanism keeps of past inputs.

The numbers are counted in the mechanism's streaming form (token by token), or from derivatives of outputs with respect
to past inputs.
"""

from typing import cast

import torch
from torch import Tensor

from synthbench.contract.setting import DOUBLE, Setting
from synthbench.errors import ContractError
from synthbench.mechanisms import Mechanism
from synthbench.mechanisms._hybrid import Hybrid
from synthbench.mechanisms.base import EVERY_INPUT

MOST = 300
"""Largest state that is measured, in numbers; each number takes a backward pass through one sequence."""
AT_ONCE = 32
"""Number of weighted sums of outputs that are differentiated at once, each on its own copy of the same tokens."""
LONGEST = 128
"""Limit on the number of past tokens."""
MARGIN = 8
"""Number of weighted sums in excess of the stated size of the state, so that a larger state is noticed."""
SMALLEST = 1e-7
"""In float64, singular values below this fraction of the largest are taken as rounding errors."""

STREAMED = 37
"""Number of tokens that are read one by one."""
AGREEMENT = 1e-9
"""Largest allowed difference between outputs of the streaming form and of ``forward``, relative to the largest."""


def numbers_carried(mechanism: Mechanism, past: int, most: int, setting: Setting = DOUBLE) -> int:
    """Estimate how many numbers a mechanism keeps about past inputs; the result is at most ``most``.

    If a mechanism keeps n numbers, later outputs depend on past inputs only through these n numbers. So the derivatives
    of later outputs with respect to past inputs span at most n dimensions. The derivatives of random weighted sums of
    later outputs are computed, and the result is the number of dimensions that they span. It may be below n if the
    mechanism lets past inputs decay.

    Args:
        mechanism: A mechanism that can read ``2 * past`` tokens.
        past: Number of past tokens; equally many later tokens follow.
        most: Number of weighted sums, and so the largest possible result.
        setting: The mechanism's device and precision.
    """
    x = setting.noise(mechanism, 1, 2 * past, seed=past)
    gradients = []
    for some in setting.noise(mechanism, most, past, seed=past + 1).split(AT_ONCE):
        first, after = (half.repeat(len(some), 1, 1) for half in x.split(past, dim=1))
        later = mechanism(torch.cat([first.requires_grad_(), after], dim=1))[:, past:]
        if not later.requires_grad:
            return 0
        torch.autograd.backward(later, some)  # reentrant checkpoints allow no other way
        gradients.append(torch.zeros_like(first) if first.grad is None else first.grad)
    mechanism.zero_grad()
    sizes = torch.linalg.svdvals(torch.cat(gradients).flatten(1))
    smallest = SMALLEST if x.dtype == torch.float64 else setting.tolerance
    return int((sizes > smallest * sizes[0]).sum())


def streamed(mechanism: Mechanism, x: Tensor) -> tuple[Tensor, list[int] | None]:
    """Run a mechanism token by token; return its outputs and the size of its state after each token.

    Args:
        mechanism: A mechanism in the precision of ``x``.
        x: Inputs, [batch, length, width].

    Returns:
        The outputs, shaped like ``x``, and a list with the state's size after each token, in numbers per sequence. The
        list is None if the mechanism has no streaming form.
    """
    state, outs, kept = mechanism.init_state(), [], []
    for token in x.unbind(1):
        out, state = mechanism.stream_step(token, state)
        outs.append(out)
        kept.append(state.numel() // len(x))
    return torch.stack(outs, dim=1), None if state.has(EVERY_INPUT) else kept


@torch.no_grad()
def check_stream(mechanism: Mechanism, setting: Setting = DOUBLE) -> None:
    """Check that a mechanism gives equal outputs token by token and in one pass, and has a state of the stated size.

    Raises:
        ContractError: If an output differs from that of ``forward``, or if the mechanism keeps more or fewer numbers
            than ``state_elements`` says.
    """
    length = min(STREAMED, mechanism.max_length)
    x = setting.noise(mechanism, 2, length, seed=length)
    outs, kept = streamed(mechanism, x)
    if kept is None:
        return
    expected = mechanism(x)
    differences = (outs - expected).abs().amax((0, 2)) / expected.abs().max().clamp(min=torch.finfo(x.dtype).tiny)
    most = AGREEMENT if x.dtype == torch.float64 else setting.tolerance
    wrong = (~(differences <= most)).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ContractError(
            f"mechanism {mechanism.name!r} gives other outputs token by token (stream_step) than at once (length "
            f"{length}): the output at position {first} differs by {float(differences[first]):.2g} of the largest"
        )
    for tokens, numbers in enumerate(kept, start=1):
        said = sum(part.state_elements(tokens) for part in parts_of(mechanism))
        if numbers != said:
            raise ContractError(
                f"mechanism {mechanism.name!r} keeps {numbers} numbers after {tokens} tokens (stream_step), but "
                f"state_elements says {said}"
            )


def parts_of(mechanism: Mechanism) -> list[Mechanism]:
    """List the mechanisms that a hybrid combines, one per layer; for any other mechanism, list only the mechanism."""
    return cast("list[Mechanism]", [*mechanism.layers] if isinstance(mechanism, Hybrid) else [mechanism])


def check_state(mechanism: Mechanism, setting: Setting = DOUBLE) -> None:
    """Check that a mechanism keeps at most ``state_elements`` numbers to remember past inputs.

    If ``state_elements`` is too large to test, nothing is checked.

    Raises:
        ContractError: If later outputs depend on the past through more than ``state_elements`` numbers.
    """
    parts = parts_of(mechanism)
    past = MARGIN
    while True:
        said = sum(part.state_elements(past) for part in parts)
        if said > MOST or 2 * past > min(2 * LONGEST, mechanism.max_length):
            return  # too large to measure, or it may keep every input
        if past * mechanism.model_dim >= said + MARGIN:
            break
        past *= 2
    carried = numbers_carried(mechanism, past, said + MARGIN, setting)
    if carried > said:
        raise ContractError(
            f"mechanism {mechanism.name!r} says that it keeps {said} numbers after {past} tokens (state_elements), but "
            f"later outputs depend on at least {carried} numbers"
        )
