"""What attention with a matrix for a state has in common, and how the gates of several papers begin."""

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from synthbench.forms.shapes import Token, Tokens
from synthbench.forms.state import State
from synthbench.mechanisms.base import Attention, Mechanism, takes_state


@dataclass(eq=False, repr=False, kw_only=True)
class RecurrentAttention(Attention):
    """Attention whose every head keeps a matrix from keys to values; a unit says what steers it."""

    @abstractmethod
    def controls(self, x: Tokens) -> tuple[Tensor | None, ...]:
        """Read gates and rates off the tokens: what ``attend`` takes after q, k and v."""

    def forward(self, x: Tokens) -> Tokens:
        """Project to heads and controls, attend, project back."""
        return self.merge_heads(self.attend(*self.heads(x), *self.controls(x)))

    def forward_last(self, x: Tokens) -> Token:
        """What ``forward`` gives at the last position, from the last query alone where ``attend`` takes that."""
        q, k, v = self.heads(x)
        if self.takes_last_queries:
            q = q[..., -1:, :]
        return self.merge_heads(self.attend(q, k, v, *self.controls(x))[..., -1:, :])

    def advance(self, x: Token, state: State) -> Token:
        """Go on from a state, if ``attend`` takes one."""
        if not takes_state(self.attend):
            return Mechanism.advance(self, x, state)
        return self.merge_heads(self.attend(*self.heads(x, state), *self.controls(x), state=state))  # type: ignore[call-arg]

    def by_head(self, x: Float[Tensor, "*batch length channels"]) -> Float[Tensor, "*batch heads length width"]:
        """Cut channels into heads."""
        cut: Tensor = x.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        return cut

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Key x value in every head, whatever the length."""
        return self.model_dim * self.head_dim


@dataclass(eq=False, repr=False, kw_only=True)
class SiluAttention(RecurrentAttention):
    """The same with SiLU on queries, keys and values, before positions turn them."""

    def split_heads(self, fused: Float[Tensor, "*batch length fused"]) -> tuple[Tensor, Tensor, Tensor]:
        """Pass the fused projection through SiLU, then cut it."""
        return super().split_heads(silu(fused))


def log_rates(num_heads: int, low: float, generator: torch.Generator | None) -> nn.Parameter:
    """Logarithms of rates uniform in [low, 16], one a head: [heads, 1, 1]."""
    return nn.Parameter(torch.empty(num_heads, 1, 1).uniform_(low, 16, generator=generator).log())


def log_uniform_steps(*shape: int, generator: torch.Generator | None) -> Tensor:
    """Biases whose softplus is log-uniform in [0.001, 0.1]."""
    step = torch.empty(shape).uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp()
    return step + (-torch.expm1(-step)).log()


def log_decay(
    log_rate: Float[Tensor, "*leading heads one one"],
    bias: Float[Tensor, "*leading heads one width"],
    x: Float[Tensor, "*batch heads length width"],
) -> Float[Tensor, "*batch heads length width"]:
    """Logarithm of Mamba's decay, exp(-rate softplus(x + bias))."""
    return -log_rate.exp() * softplus(x + bias)
