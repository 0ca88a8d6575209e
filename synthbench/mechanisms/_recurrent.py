"""Base classes of attention whose state is one matrix per head, and functions that draw initial values of gates."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, softplus

from synthbench.forms.shapes import Tokens, ValueHeads
from synthbench.layers import Linear, RmsNorm, ShortConvolution, UndecayedParameter
from synthbench.mechanisms.base import Attention, kept_by_convolution, stock_part
from synthbench.options import option


@dataclass(eq=False, repr=False, kw_only=True)
class RecurrentAttention(Attention):
    """Attention with gates or rates computed from the tokens.

    By default, the state of a head is a matrix with one row per key channel and one column per value channel.
    """

    family: ClassVar = "linear-recurrent"
    own_positions: ClassVar[Literal["none", "rope"]] = "none"

    def by_head(self, x: Float[Tensor, "*batch length channels"]) -> Float[Tensor, "*batch heads length width"]:
        """Split the channels into heads."""
        cut: Tensor = x.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        return cut

    def state_elements(self, length: int) -> int:  # noqa: ARG002 - that is the point of it
        """Return the size of the state, heads x key width x value width, which does not depend on the length."""
        return self.model_dim * self.head_dim


@dataclass(eq=False, repr=False, kw_only=True)
class SiluAttention(RecurrentAttention):
    """Recurrent attention with SiLU on queries, keys and values, a short convolution, and normalised, gated outputs.

    As in flash-linear-attention, the convolution comes before SiLU, and both come before rotations by position. Each
    head's output is divided by its root mean square. It is then multiplied by a gain that all heads share, and by a
    gate computed from the token.
    """

    conv: int = option(4, "tokens that its short convolutions see, 0 for none", low=0, high=64, absent=0)
    norm_gain: bool = stock_part("whether the norm of a head's output has a gain")
    output_gate: bool = stock_part("whether a gate read off the token multiplies a head's normed output")

    epsilon: ClassVar[float] = 1e-5
    """The number that the norm adds to the mean square of a head's output."""

    def initialise(self, generator: torch.Generator | None) -> None:
        """Create the convolution, norm and output gate; a subclass must first draw its own parameters."""
        if self.conv:
            self.own_convolution = ShortConvolution(self.conv, 3 * self.model_dim, generator)
        # The authors divide q by the root of its width. The norm undoes this, except for its epsilon.
        self.norm = RmsNorm(self.head_dim, self.epsilon * self.head_dim) if self.norm_gain else None
        self.out_gate = self.draw_output_gate(generator) if self.output_gate else None

    def draw_output_gate(self, generator: torch.Generator | None) -> nn.Module:
        """Draw the projection to the output gates, one gate per channel."""
        return Linear(self.model_dim, self.model_dim, bias=False, generator=generator)

    def activated(self, gates: Tensor) -> Tensor:
        """Apply SiLU, the activation of the output gates."""
        return silu(gates)

    def draw_decay(
        self, generator: torch.Generator | None, *, width: int = 1, lowest: float = 0.0, undecayed: bool
    ) -> None:
        """Draw, for each head, a rate from the uniform distribution on [``lowest``, 16], and ``width`` biases.

        The method :meth:`log_decay` uses the rates and biases. If ``undecayed`` is True, no weight decay applies to the
        rates and biases.
        """
        log_rates = torch.empty(self.num_heads, 1, 1).uniform_(lowest, 16, generator=generator).log()
        biases = log_uniform_steps(self.num_heads, 1, width, generator=generator)
        kind = UndecayedParameter if undecayed else nn.Parameter
        self.log_rate, self.gate_bias = kind(log_rates), kind(biases)

    def log_decay(self, x: Float[Tensor, "*batch heads length width"]) -> Float[Tensor, "*batch heads length width"]:
        """Compute the logarithm of the decay factor exp(-rate softplus(x + bias)), as in Mamba."""
        return -self.log_rate.exp() * softplus(x + self.gate_bias)

    def output_gates(self, x: Tokens) -> ValueHeads | None:
        """Compute the output gates from the tokens; return None if the layer has no output gate."""
        return None if self.out_gate is None else self.by_head(self.activated(self.out_gate(x)))

    def normed(self, out: ValueHeads, gates: ValueHeads | None) -> ValueHeads:
        """Divide each head's output by its root mean square, then multiply it by ``gates`` unless ``gates`` is None."""
        normal = rms_norm(out, out.shape[-1:], eps=self.epsilon) if self.norm is None else self.norm(out)
        return normal if gates is None else normal * gates

    def split_heads(self, fused: Float[Tensor, "*batch length fused"]) -> tuple[Tensor, Tensor, Tensor]:
        """Apply SiLU to the fused projection, then split it into q, k and v."""
        return super().split_heads(silu(fused))

    def state_elements(self, length: int) -> int:
        """Count the numbers in the state matrices of all heads and in the past inputs that the convolutions store."""
        return super().state_elements(length) + kept_by_convolution(self.conv, 3 * self.model_dim, length)


def log_uniform_steps(*shape: int, generator: torch.Generator | None) -> Tensor:
    """Draw biases whose softplus is log-uniform in [0.001, 0.1], like the step sizes of Mamba."""
    step = torch.empty(shape).uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp()
    return step + (-torch.expm1(-step)).log()
