"""A recurrence with a decay for every channel and state, computed block by block.

The recurrence is h_t = exp(Δ_t A) h_{t-1} + Δ_t x_t B_t and y_t = h_t C_t, with h [channels, states]. Decays and states
are held for the tokens of one block only. The inputs and the state before each block are kept for the backward pass,
which computes the decays and all other states again.

On a CPU a block fits the caches and is computed token by token. On other devices the number of kernel launches matters,
so blocks are longer, and a block of T tokens is cut into chunks of √T tokens. All chunks are computed at once, then
combined one after the other.

Source: Gu & Dao (2024), section 3.3, for the scan and for computing states again instead of storing them.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from synthbench.forms.linear import widened
from synthbench.forms.state import State

SEGMENT = 256
"""Largest number of tokens in a block."""

CACHED = 2**18
"""Limit on the size of a block's states on a CPU, in numbers. Measured: 2**17 to 2**20 are equally fast, 2**16 takes
1.3 times as long."""


def selective_scan(
    step: Float[Tensor, "*batch length channels"],
    rate: Float[Tensor, "*leading channels states"],
    b: Float[Tensor, "*batch length states"],
    c: Float[Tensor, "*batch length states"],
    x: Float[Tensor, "*batch length channels"],
    *,
    state: State | None = None,
) -> Float[Tensor, "*batch length channels"]:
    """Compute y_t = h_t C_t, where h_t = exp(Δ_t A) h_{t-1} + Δ_t x_t B_t.

    ``step`` is Δ, and ``rate`` is A, which is negative. ``rate`` must broadcast to [..., length, channels, states]. If
    ``state`` is given, the inputs belong to the next token only, and ``state`` is updated.
    """
    if state is not None:
        update = widened((step * x).unsqueeze(-1) * b.unsqueeze(-2))
        before = state.tensors.get("states", torch.zeros_like(update))
        state.tensors["states"] = (step.unsqueeze(-1) * rate).exp() * before + update
        return (state.tensors["states"] @ c.unsqueeze(-1)).squeeze(-1).to(x.dtype)
    y: Tensor = _Scan.apply(*map(widened, (step, rate, b, c, x)))  # type: ignore[no-untyped-call]
    return y.to(x.dtype)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Tensor, rate: Tensor, b: Tensor, c: Tensor, x: Tensor) -> Tensor:
        added, y = step * x, torch.empty_like(x)
        state = added.new_zeros(*x.shape[:-2], x.shape[-1], b.shape[-1])
        befores = []
        for rows in _blocks(x, b.shape[-1]):
            befores.append(state)
            _, states = _states(step, rate, b, added, rows, state)
            y[..., rows, :] = (states @ c[..., rows, :, None]).squeeze(-1)
            state = states[..., -1, :, :].clone()
        ctx.save_for_backward(step, rate, b, c, x, *befores)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor, ...]:
        """Go through the tokens backwards: the gradient of h_t comes from y_t and, through the decay, from h_{t+1}."""
        step, rate, b, c, x, *befores = ctx.saved_tensors
        added = step * x
        d_step, d_b, d_c, d_added = (torch.empty_like(z) for z in (step, b, c, added))
        d_rate, later = torch.zeros_like(rate), torch.zeros_like(befores[0])
        for rows, state in zip(reversed(_blocks(x, b.shape[-1])), reversed(befores), strict=True):
            decay, states = _states(step, rate, b, added, rows, state)
            d_rows = d_y[..., rows, :]
            d_c[..., rows, :] = (d_rows.unsqueeze(-2) @ states).squeeze(-2)
            received = d_rows.unsqueeze(-1) * c[..., rows, None, :]
            received[..., -1, :, :] += later
            _accumulate(decay[..., 1:, :, :], received[..., :-1, :, :], received[..., -1, :, :], backwards=True)
            later = decay[..., 0, :, :] * received[..., 0, :, :]
            d_added[..., rows, :] = (received @ b[..., rows, :, None]).squeeze(-1)
            d_b[..., rows, :] = (added[..., rows, None, :] @ received).squeeze(-2)
            of_exponent = received.mul_(decay)
            of_exponent[..., 1:, :, :].mul_(states[..., :-1, :, :])
            of_exponent[..., 0, :, :].mul_(state)
            d_rate += (of_exponent * step[..., rows, :, None]).sum_to_size(rate.shape)
            d_step[..., rows, :] = of_exponent.mul_(rate).sum(-1)
        return d_step.addcmul_(d_added, x), d_rate, d_b, d_c, d_added.mul_(step)


def _blocks(x: Tensor, num_states: int) -> list[slice]:
    length = x.shape[-2]
    size = SEGMENT
    if _is_cached(x):
        size = max(1, min(SEGMENT, CACHED // max(1, x[..., 0, :].numel() * num_states)))
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _is_cached(x: Tensor) -> bool:
    return x.device.type == "cpu"


def _states(step: Tensor, rate: Tensor, b: Tensor, added: Tensor, rows: slice, state: Tensor) -> tuple[Tensor, Tensor]:
    """Compute decays and states of the tokens in ``rows``, each [..., rows, channels, states]."""
    decay = (step[..., rows, :, None] * rate).exp_()
    states = added[..., rows, :, None] * b[..., rows, None, :]
    _accumulate(decay, states, state)
    return decay, states


def _accumulate(decay: Tensor, update: Tensor, state: Tensor, *, backwards: bool = False) -> None:
    """Overwrite ``update`` with h_t = decay_t h_{t-1} + update_t; if ``backwards``, with decay_t h_{t+1} + update_t."""
    if _is_cached(update):
        steps = list(zip(decay.unbind(-3), update.unbind(-3), strict=True))
        for decay_t, update_t in reversed(steps) if backwards else steps:
            state = update_t.addcmul_(decay_t, state)
    elif backwards and update.numel():
        update.copy_(scan(decay.flip(-3), update.flip(-3), state).flip(-3))
    elif update.numel():
        update.copy_(scan(decay, update, state))


def scan(
    decay: Float[Tensor, "*batch length channels states"],
    update: Float[Tensor, "*batch length channels states"],
    state: Float[Tensor, "*batch channels states"],
) -> Float[Tensor, "*batch length channels states"]:
    """Compute all states h_t = decay_t h_{t-1} + update_t from the initial ``state``, in two loops of √length steps.

    The first loop goes through the tokens of a chunk, for all √length chunks in parallel. The second loop adds the
    contribution of the state before each chunk.
    """
    length = update.shape[-3]
    size = math.ceil(math.sqrt(length))
    num_chunks = math.ceil(length / size)
    decay, update = (
        pad(z, (0, 0, 0, 0, 0, num_chunks * size - length)).unflatten(-3, (num_chunks, size)) for z in (decay, update)
    )
    passed, states = torch.empty_like(decay), torch.empty_like(update)
    passed[..., 0, :, :], states[..., 0, :, :] = decay[..., 0, :, :], update[..., 0, :, :]
    for n in range(1, size):
        torch.mul(decay[..., n, :, :], passed[..., n - 1, :, :], out=passed[..., n, :, :])
        torch.addcmul(update[..., n, :, :], decay[..., n, :, :], states[..., n - 1, :, :], out=states[..., n, :, :])
    for n in range(num_chunks):
        states[..., n, :, :, :].addcmul_(passed[..., n, :, :, :], state.unsqueeze(-3))
        state = states[..., n, -1, :, :]
    return states.flatten(-4, -3)[..., :length, :, :]
