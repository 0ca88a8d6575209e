"""Shared code of attention with a matrix for a state, and the initial gates of several papers."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, softplus

from synthbench.forms.shapes import Token, Tokens, ValueHeads
from synthbench.forms.state import State
from synthbench.layers import Linear, RmsNorm, ShortConvolution, UndecayedParameter
from synthbench.mechanisms.base import Attention, Mechanism, kept_by_convolution, takes_state
from synthbench.options import option


@dataclass(eq=False, repr=False, kw_only=True)
class RecurrentAttention(Attention):
    """Attention whose every head keeps a matrix from keys to values; a unit says what steers it."""

    @abstractmethod
    def controls(self, x: Tokens) -> tuple[Tensor | None, ...]:
        """Compute gates and rates from the tokens: the arguments of ``attend`` after q, k and v."""

    def forward(self, x: Tokens) -> Tokens:
        """Project to heads and controls, attend, project back."""
        return self.merge_heads(self.attend(*self.heads(x), *self.controls(x)))

    def forward_last(self, x: Tokens) -> Token:
        """Compute the last position of ``forward``, from the last query alone where ``attend`` allows it."""
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
    """The same with SiLU on queries, keys and values, before positions turn them, and with what comes around it.

    As in flash-linear-attention, a short convolution comes before SiLU. Each head's output is divided by its root mean
    square, then multiplied by a gain, the same in every head, and by a gate computed from the token.
    """

    conv: int = option(4, "tokens that its short convolutions see, 0 for none", low=0, high=64, absent=0)
    norm_gain: bool = option(default=True, meaning="whether the norm of a head's output has a gain", absent=False)
    output_gate: bool = option(
        default=True, meaning="whether a gate read off the token multiplies a head's normed output", absent=False
    )

    own_positions: ClassVar = "none"
    epsilon: ClassVar[float] = 1e-5
    """The number that the norm adds to the mean square of a head's output."""

    def initialise(self, generator: torch.Generator | None) -> None:
        """Draw what comes around the recurrence; a unit calls this after it has drawn its own."""
        if self.conv:
            self.own_convolution = ShortConvolution(self.conv, 3 * self.model_dim, generator)
        # The authors divide q by the root of its width, which the norm undoes but for its epsilon.
        self.norm = RmsNorm(self.head_dim, self.epsilon * self.head_dim) if self.norm_gain else None
        self.out_gate = self.draw_output_gate(generator) if self.output_gate else None

    def draw_output_gate(self, generator: torch.Generator | None) -> nn.Module:
        """Draw the projection to the output gates, one per channel."""
        return Linear(self.model_dim, self.model_dim, bias=False, generator=generator)

    def activated(self, gates: Tensor) -> Tensor:
        """Apply the activation of the output gates."""
        return silu(gates)

    def output_gates(self, x: Tokens) -> ValueHeads | None:
        """Compute the output gates from the tokens; None if there are none."""
        return None if self.out_gate is None else self.by_head(self.activated(self.out_gate(x)))

    def normed(self, out: ValueHeads, gates: ValueHeads | None) -> ValueHeads:
        """Norm each head's output, and multiply it by its gates."""
        normal = rms_norm(out, out.shape[-1:], eps=self.epsilon) if self.norm is None else self.norm(out)
        return normal if gates is None else normal * gates

    def split_heads(self, fused: Float[Tensor, "*batch length fused"]) -> tuple[Tensor, Tensor, Tensor]:
        """Pass the fused projection through SiLU, then cut it."""
        return super().split_heads(silu(fused))

    def state_elements(self, length: int) -> int:
        """Key x value in every head, and what the convolutions keep of the latest tokens."""
        return super().state_elements(length) + kept_by_convolution(self.conv, 3 * self.model_dim, length)


def log_rates(num_heads: int, low: float, generator: torch.Generator | None) -> Tensor:
    """Logarithms of rates uniform in [low, 16], one per head: [heads, 1, 1]."""
    return torch.empty(num_heads, 1, 1).uniform_(low, 16, generator=generator).log()


def trained(values: Tensor, *, undecayed: bool) -> nn.Parameter:
    """A parameter that begins with these values; weight decay may leave it alone."""
    return UndecayedParameter(values) if undecayed else nn.Parameter(values)


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
