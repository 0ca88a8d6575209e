"""A recurrence with a decay for every channel and state, in two levels: tokens of a chunk, then chunks.

h_t = exp(Δ_t A) h_{t-1} + Δ_t x_t B_t and y_t = h_t C_t, with h [channels, states]. All chunks of a segment take their
n-th token at once, beginning with a state of 0; then the states pass from chunk to chunk. With chunks of √T tokens both
loops have √T steps. Segments bound what is held, and the backward pass computes each of them again.

Source: Gu & Dao (2024), section 3.3: scan, and recomputation instead of storing states.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from synthbench.forms.linear import widened

SEGMENT = 256
"""Tokens whose states exist at a time."""


def selective_scan(
    step: Float[Tensor, "*batch length channels"],
    rate: Float[Tensor, "*leading channels states"],
    b: Float[Tensor, "*batch length states"],
    c: Float[Tensor, "*batch length states"],
    x: Float[Tensor, "*batch length channels"],
) -> Float[Tensor, "*batch length channels"]:
    """The outputs y; ``rate`` is A, negative, and broadcasts against [..., length, channels, states]."""
    dtype, rate = x.dtype, widened(rate)
    outs, state = [], widened(x[..., 0, :, None] * b[..., 0, None, :]) * 0
    for parts in zip(*(widened(part).split(SEGMENT, dim=-2) for part in (step, b, c, x)), strict=True):
        given: tuple[Tensor, ...] = (*parts, rate, state)
        if torch.is_grad_enabled() and x.shape[-2] > SEGMENT:
            out, state = checkpoint(_segment, *given, use_reentrant=False, preserve_rng_state=False)
        else:
            out, state = _segment(*given)
        outs.append(out)
    return torch.cat(outs, dim=-2).to(dtype)


def _segment(step: Tensor, b: Tensor, c: Tensor, x: Tensor, rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of a segment that begins with a state, and the state after it."""
    decay, update = (step.unsqueeze(-1) * rate).exp(), (step * x).unsqueeze(-1) * b.unsqueeze(-2)
    states, state = _Scan.apply(decay, update, state)  # type: ignore[no-untyped-call]
    return (states @ c.unsqueeze(-1)).squeeze(-1), state


class _Scan(torch.autograd.Function):
    """h_t = decay_t h_{t-1} + update_t along axis -3, from a state; all h, and the last again."""

    @staticmethod
    def forward(ctx, decay: Tensor, update: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        """Run forwards."""
        states = scan(decay, update, state)
        ctx.save_for_backward(decay, states, state)
        return states, states[..., -1, :, :].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor, grad_last: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[no-untyped-def]
        """Run backwards: what a state receives is its own gradient and, decayed, that of the next."""
        decay, states, state = ctx.saved_tensors
        later = torch.cat([decay[..., 1:, :, :], torch.ones_like(decay[..., :1, :, :])], dim=-3)
        received = scan(later.flip(-3), grad.flip(-3), grad_last).flip(-3)
        before = torch.cat([state.unsqueeze(-3), states[..., :-1, :, :]], dim=-3)
        return received * before, received, received[..., 0, :, :] * decay[..., 0, :, :]


def scan(
    decay: Float[Tensor, "*batch length channels states"],
    update: Float[Tensor, "*batch length channels states"],
    state: Float[Tensor, "*batch channels states"],
) -> Float[Tensor, "*batch length channels states"]:
    """All states of h_t = decay_t h_{t-1} + update_t, in two loops of √length steps."""
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
